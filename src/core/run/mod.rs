//! Active runs: which runs were active between two instants.
//!
//! A run is active in `[begin, end)` if `start < end && (stop is not set || stop >= begin)`: the window is
//! half-open, the stop inclusive. The index reads only rows that are hits.
//!
//! * [`RunRecord`] is what is stored and [`ActiveQuery`] is the query.
//!   [`ReadTx::active_runs`](crate::store::ReadTx::active_runs) runs it.
//! * [`ReadTx::run_series`](crate::store::ReadTx::run_series) folds runs into buckets of time: active runs,
//!   starts, stops and time at work.
//! * [`Tx::record_runs`](crate::store::Tx::record_runs) and [`stop_runs`](crate::store::Tx::stop_runs) check
//!   records before they are stored. [`close_silent_runs`](crate::store::Tx::close_silent_runs) closes runs
//!   whose heartbeats stopped.

mod active;
pub(crate) mod index;
pub(crate) mod query;
mod record;
mod series;
mod sorted;

pub(crate) use active::ActiveIndex;
pub use query::ActiveQuery;
pub(crate) use query::RunPlace;
pub use record::{RunBeat, RunClose, RunKey, RunRecord, RunStatus, StartMethod, Suspension};
pub use series::{Bucket, Group, SeriesBy};
pub(crate) use series::{Series, SeriesSpec};
