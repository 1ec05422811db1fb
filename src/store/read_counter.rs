//! Counts reads of the active-run index and of task lists, for tests that enable it.

use std::cell::Cell;

/// The number of reads by queries for active runs and lists of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunReads {
    /// Rows of the index that were read, or tasks that a list read.
    pub rows: usize,
    /// Ranges that were searched, over all namespaces.
    pub seeks: usize,
}

thread_local! {
    static READS: Cell<Option<RunReads>> = const { Cell::new(None) };
}

/// Runs the body, and returns what its queries on this thread read: from the active-run index of the crate's
/// stores, and tasks for lists. Counting is off outside the body. Inside, it costs the SQL stores a second
/// statement per query for runs. PostgreSQL counts only the rows that it returns, because the server filters
/// out the others.
pub fn count_run_reads<T>(body: impl FnOnce() -> T) -> (T, RunReads) {
    READS.set(Some(RunReads::default()));
    let answer = body();
    (answer, READS.take().unwrap_or_default())
}

/// Returns true if counting is on.
pub(super) fn is_on() -> bool {
    READS.get().is_some()
}

pub(super) fn rows(more: usize) {
    READS.set(READS.get().map(|reads| RunReads { rows: reads.rows + more, ..reads }));
}

pub(super) fn seeks(more: usize) {
    READS.set(READS.get().map(|reads| RunReads { seeks: reads.seeks + more, ..reads }));
}
