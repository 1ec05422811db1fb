//! How the writers of one schema take turns.
//!
//! A transaction that writes locks the table `writer` before it looks at anything, so that it decides on what
//! the one before it committed. The server grants the lock in the order in which it was asked for. A
//! transaction of the host's may have looked before: at `REPEATABLE READ` and above it would go on to see
//! what was true then. So every transaction that changes anything also changes the table's one row, and one
//! whose view is older than the last change is refused by the server when it tries (40001).

/// Takes the turn, and takes no snapshot.
pub(super) const LOCK: &str = "LOCK TABLE sm.writer IN EXCLUSIVE MODE";

/// Fails if the transaction does not see what the writer before it committed.
pub(super) const TICKET: &str = "UPDATE sm.writer SET ticket = ticket + 1";
