//! What tests of stores and hosts need, beside the conformance suite. Feature `testing`.

pub mod history;

#[cfg(feature = "postgres")]
pub use crate::store::postgres::watch::{RoundTrip, SentStatement, planner_settings, watch_round_trips};
pub use crate::store::tally::{RunReads, count_run_reads};
