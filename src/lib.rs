//! Scheduling primitives for workflow orchestrators.

pub mod backoff;
pub mod canonical;
pub mod clock;
pub mod error;
pub mod fingerprint;
pub mod id;
pub mod seconds;
pub mod shard;
pub mod time;

pub use error::{Error, Result};
pub use id::TaskKey;
