//! What tests of stores and hosts need, beside the conformance suite. Feature `testing`.

mod fault;
pub mod history;
mod raw;
mod steps;
mod sweep;

pub use crate::conformance::{Snapshot, Watch};
#[cfg(feature = "postgres")]
pub use crate::store::postgres::watch::{RoundTrip, SentStatement, planner_settings, watch_round_trips};
pub use crate::store::tally::{RunReads, count_run_reads};
pub use fault::{Fault, FaultStore, Struck, When};
pub use raw::{RawStoreExt, raw};
pub use steps::{Step, life, watch};
pub use sweep::{KINDS, Sweep, sweep_faults};
