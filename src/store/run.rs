//! What a store does with runs.

use crate::error::StoreResult;
use crate::run::{ActiveQuery, RunClose, RunKey, RunRecord};
use crate::store::Moved;

/// Runs and their active-run index.
pub trait RunTx {
    /// Inserts runs, or replaces those of equal key: a corrected stop, a re-opened run. Of equal keys in one call the last
    /// counts.
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()>;

    /// Closes those that are there and open. A stop before the start is stored as the start.
    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<Moved>>;

    /// The runs of these keys.
    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>>;

    /// Deletes runs, open or not, and answers how many there were.
    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize>;

    /// The runs active in the window, by start, then namespace, then id.
    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>>;
}
