//! Scheduling primitives for workflow orchestrators.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod admission;
pub mod backoff;
pub mod bounds;
pub mod canonical;
pub mod clock;
pub mod error;
pub mod fingerprint;
pub mod id;
pub mod lease;
pub mod pool;
pub mod run;
pub mod seconds;
pub mod sensor;
pub mod service;
pub mod shard;
pub mod store;
pub mod task;
pub mod time;

pub use error::{Error, Result};
pub use id::TaskKey;
pub use lease::{LeaseRef, TaskNo};
pub use task::{NewTask, TaskRecord, TaskState};
