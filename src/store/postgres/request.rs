//! What callers ask of a connection.

use std::fmt;

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
    Begin(Opening, Vec<Statement>, Touch, Then),
    /// Runs these statements in it.
    Continue(Vec<Statement>, Then),
    /// Commits it.
    Commit(Then),
    /// Ends it, without waiting for the result.
    RollBack,
    /// Runs this text, a transaction of its own.
    Tell(String),
    /// Sends it, without waiting for the result.
    TellBeside(String, Untold),
}

/// Calls this when it is dropped, unless the text is known to have been sent.
pub(super) struct Untold(Option<Box<dyn Fn() + Send + Sync>>);

impl Untold {
    pub(super) fn new(call: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(call)))
    }

    /// Notes that it was sent.
    pub(super) fn told(mut self) {
        self.0 = None;
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call();
        }
    }
}

impl fmt::Debug for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Untold")
    }
}

/// What follows statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// More of the transaction.
    More,
    /// The commit.
    Commit,
    /// The commit, which does not wait for its flush, and the flush.
    Flush,
    /// The commit before the last of the statements, which flushes if there is something to flush.
    FlushLast,
}

impl Then {
    pub(super) fn commit(flushes: bool) -> Self {
        if flushes { Self::Flush } else { Self::Commit }
    }

    /// Returns what precedes the commit, and what follows it.
    pub(super) fn split(self, batch: &[Statement]) -> (&[Statement], &[Statement]) {
        let last = usize::from(self == Self::FlushLast);
        batch.split_at(batch.len().saturating_sub(last))
    }
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
