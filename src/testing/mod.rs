//! What tests of stores and hosts need, beside the conformance suite. Feature `testing`.

pub mod history;

pub use crate::store::tally::{RunReads, count_run_reads};
