//! How the writers of one schema exclude each other.
//!
//! A write transaction locks the table `writer` before it reads anything, so it decides on what the previous
//! one committed. The server grants the lock in the order of requests. A host's transaction may have read
//! before: at `REPEATABLE READ` and above it would keep seeing that older state. So every transaction that
//! changes anything also changes the table's one row. If its snapshot is older than the last change, the
//! server refuses that update (40001).

/// Takes the writer lock, without taking a snapshot.
pub(super) const LOCK: &str = "LOCK TABLE sm.writer IN EXCLUSIVE MODE";

/// Fails if the transaction does not see what the writer before it committed.
pub(super) const TICKET: &str = "UPDATE sm.writer SET ticket = ticket + 1";
