//! Active runs: which runs were active between two instants.
//!
//! A run is active in `[begin, end)` if `start < end && (stop is none || stop >= begin)`: the window is half-open, the
//! stop inclusive. The index answers by reading only rows that are hits; see [`index`].

pub mod index;
mod record;

pub use record::{ActiveQuery, RunClose, RunKey, RunRecord, RunStatus, StartMethod};
