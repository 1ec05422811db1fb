//! What a store does with runs.

use chrono::{DateTime, Utc};

use crate::error::StoreResult;
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};

/// Runs and their active-run index.
///
/// What a store promises of its cost: a query for a window reads the rows that it answers, and no others but
/// those that are refused by the query's own status and workflow, or stop before they start; it searches at
/// most [`MOST_SEEKS`](crate::run::index::MOST_SEEKS) times per namespace. A page reads what it answers, one
/// row more per namespace (PostgreSQL, which answers it in one round trip: up to a page per namespace), and,
/// as long as it is among the runs that started before the window, the index entries of those. Writing a run
/// changes a fixed number of rows, whatever its length.
///
/// No method checks that a run stops after it starts: such a run is kept, and answered by the rule.
/// [`Tx::record_runs`](crate::store::Tx::record_runs) refuses it before it comes here.
pub trait RunTx {
    /// Inserts runs, or replaces those of equal key: a corrected start or stop, a re-opened run. Of equal
    /// keys in one call the last counts.
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()>;

    /// Closes those that are there and open. A stop before the start is stored as the start. All else stays.
    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<bool>>;

    /// Notes signs of life of those that are there and open, whatever their status: a run's heartbeat becomes
    /// the latest of its own and these. Returns `false` for a run that is not there or closed: whoever works on
    /// it should stop.
    fn beat_runs_if_open(&mut self, beats: &[RunBeat]) -> StoreResult<Vec<bool>>;

    /// The runs of these keys.
    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>>;

    /// Deletes runs, open or not, and answers how many there were.
    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize>;

    /// Deletes at most `limit` closed runs that both started and stopped before an instant, and answers how
    /// many. Open runs stay, however old. Which go first is the store's choice; call again until fewer than
    /// `limit` went.
    fn forget_stopped_runs(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize>;

    /// The runs active in the window that the query asks for, by start, then namespace, then id; after the
    /// query's place, and at most its limit. A run that stays as it is while pages are read is in exactly one
    /// of them, whatever becomes of the others.
    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>>;

    /// As [`Self::active_runs`], but only where the runs stand. Without a filter the records are not read.
    fn active_run_places(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunPlace>>;

    /// How many runs [`Self::active_runs`] would answer. Without a filter the records are not read.
    fn count_active_runs(&mut self, query: &ActiveQuery) -> StoreResult<u64>;

    /// At most `limit` open runs, not suspended, whose last heartbeat is before an instant: the longest
    /// silent first, equally long silent ones in any order. A run that never had a heartbeat is not watched.
    fn silent_runs(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<Vec<RunRecord>>;
}
