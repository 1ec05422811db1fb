//! The pure core: values in, values out. `now` is an argument. The core does not use clocks, threads, stores
//! or files.

pub mod admission;
pub mod backoff;
pub mod canonical;
pub mod feed;
pub mod fingerprint;
pub mod lease;
pub mod pool;
pub mod run;
pub mod seconds;
pub mod sensor;
pub mod shard;
pub mod task;
pub(crate) mod worker;
