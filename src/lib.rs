//! Scheduling primitives for workflow orchestrators.

pub mod backoff;
pub mod clock;
pub mod error;
pub mod id;
pub mod seconds;
pub mod time;

pub use error::{Error, Result};
pub use id::TaskKey;
