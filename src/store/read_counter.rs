//! Counts what is read of the active-run index, for tests that ask for it.

use std::cell::Cell;

/// What queries for active runs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunReads {
    /// Rows of the index that were looked at.
    pub rows: usize,
    /// Ranges that were searched, over all namespaces.
    pub seeks: usize,
}

thread_local! {
    static READS: Cell<Option<RunReads>> = const { Cell::new(None) };
}

/// Runs the body, and answers what its queries on this thread read of the active-run index of the crate's
/// stores. Counting is off outside, and costs the stores in SQL a second statement per query inside.
/// PostgreSQL counts the rows that it answers: it refuses others by itself.
pub fn count_run_reads<T>(body: impl FnOnce() -> T) -> (T, RunReads) {
    READS.set(Some(RunReads::default()));
    let answer = body();
    (answer, READS.take().unwrap_or_default())
}

/// Whether anybody wants to know.
pub(super) fn is_on() -> bool {
    READS.get().is_some()
}

pub(super) fn rows(more: usize) {
    READS.set(READS.get().map(|reads| RunReads { rows: reads.rows + more, ..reads }));
}

pub(super) fn seeks(more: usize) {
    READS.set(READS.get().map(|reads| RunReads { seeks: reads.seeks + more, ..reads }));
}
