//! Tools for tests of stores and hosts, besides the conformance suite. Feature `testing`.

pub mod conformance;
pub mod core;
mod fault;
pub mod history;
mod raw;
mod steps;
mod sweep;

#[cfg(feature = "postgres")]
pub use crate::store::postgres::watch::{RoundTrip, SentStatement, planner_settings, watch_round_trips};
pub use crate::store::read_counter::{RunReads, count_run_reads};
pub use conformance::{Snapshot, Watch};
pub use fault::{Fault, FaultStore, Struck, When};
pub use raw::{RawStoreExt, raw};
pub use steps::{Step, life, watch};
pub use sweep::{KINDS, Sweep, sample_faults, sweep_faults};
