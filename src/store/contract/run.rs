//! What a store does with runs.

use crate::error::StoreResult;
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::time::Timestamp;

/// Runs and their active-run index.
///
/// A store promises these costs:
///
/// * A query for a window reads the rows that it returns. It also reads rows that its own filters exclude
///   (status, workflow, start method, user), and runs that stop before they start, but no others.
/// * It searches at most [`MOST_SEEKS`](crate::run::index::MOST_SEEKS) times per namespace.
/// * A page reads what it returns, plus one row per namespace. PostgreSQL reads up to one page per namespace,
///   so that it needs only one round trip.
/// * A page that begins among the runs that started before the window also reads the index entries of those
///   runs.
/// * Writing a run changes a fixed number of rows, whatever its length.
///
/// No method checks that a run stops after it starts. A run that does not is stored, and queries apply
/// their usual rule to it. [`Tx::record_runs`](crate::store::Tx::record_runs) refuses it earlier.
pub trait RunTx {
    /// Inserts runs, or replaces those with the same key, for example to correct a start or stop, or to
    /// re-open a run. If one call names a key twice, the last counts.
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()>;

    /// Closes the runs that exist and are open. A stop before the start is stored as the start. Everything
    /// else stays.
    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<bool>>;

    /// Locks the runs that exist until the transaction ends, and waits for those that another transaction has
    /// locked. Later reads of them return the same. A store with one writer at a time has nothing to wait
    /// for, and keeps the default.
    fn wait_for_runs(&mut self, keys: &[RunKey]) -> StoreResult<()> {
        let _ = keys;
        Ok(())
    }

    /// Locks those of these runs that are open, until the transaction ends, and skips those that another
    /// transaction has locked. Returns `false` for the latter, and `true` for the others, including runs that
    /// are closed or do not exist. A store with one writer at a time has nothing to lock, and keeps the
    /// default.
    fn hold_runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<bool>> {
        Ok(vec![true; keys.len()])
    }

    /// Records heartbeats of the runs that exist and are open, whatever their status. A run keeps the latest
    /// of its own heartbeat and these. Returns `false` for a run that does not exist or is closed: its worker
    /// should stop.
    fn beat_runs_if_open(&mut self, beats: &[RunBeat]) -> StoreResult<Vec<bool>>;

    /// Returns the runs with these keys.
    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>>;

    /// Deletes runs, open or not, and returns how many there were.
    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize>;

    /// Deletes at most `limit` closed runs that both started and stopped before an instant, and returns how
    /// many. Open runs stay, however old. The store chooses which are deleted first. Call again until fewer
    /// than `limit` were deleted.
    fn forget_stopped_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize>;

    /// Returns the runs active in the query's window, by start, then namespace, then id. Begins after the
    /// query's place, and returns at most its limit. A run that does not change while pages are read is in
    /// exactly one of them, whatever happens to other runs.
    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>>;

    /// Returns only the places of the runs that [`Self::active_runs`] returns. Without a filter the records
    /// are not read.
    fn active_run_places(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunPlace>>;

    /// Returns how many runs [`Self::active_runs`] would return. Without a filter the records are not read.
    fn count_active_runs(&mut self, query: &ActiveQuery) -> StoreResult<u64>;

    /// Returns at most `limit` open runs, not suspended, whose last heartbeat is before an instant. The
    /// longest silent come first; ties come in any order. A run that never had a heartbeat is not watched.
    fn silent_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<Vec<RunRecord>>;
}
