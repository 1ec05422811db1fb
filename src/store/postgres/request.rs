//! What callers ask of a connection.

use super::error::Failure;
use super::wire::{Answer, Statement, Touch};

/// What a caller wants done on a connection.
#[derive(Debug)]
pub(super) enum Request {
    /// Connects, and checks the tables.
    Connect,
    /// Closes the connection.
    Disconnect,
    /// Begins a transaction with these statements.
    Begin(Opening, Vec<Statement>, Touch),
    /// Runs these statements in it.
    Continue(Vec<Statement>),
    /// Commits it, and then waits for a flush if the commit does not.
    Commit { flushes: bool },
    /// Ends it, without waiting for the result.
    RollBack,
    /// Runs this text, a transaction of its own.
    Tell(String),
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Read,
    Write,
    /// It writes, and renews first. So it must not wait long for anything else.
    Renew,
}

pub(super) type Reply = Result<Vec<Answer>, Failure>;
