//! The requests that callers make on a connection.

use std::fmt;

use super::error::Failure;
use super::wire::{Answer, Statement, Touch};

/// A request on a connection.
#[derive(Debug)]
pub(super) enum Request {
    /// Connects, and checks the tables.
    Connect,
    /// Closes the connection.
    Disconnect,
    /// Begins a transaction with these statements.
    Begin(Opening, Vec<Statement>, Touch, Then),
    /// Runs these statements in the transaction.
    Continue(Vec<Statement>, Then),
    /// Commits the transaction.
    Commit(Then),
    /// Rolls the transaction back, without waiting for the result.
    RollBack,
    /// Runs this text, which is its own transaction.
    Announce(String),
    /// Sends such a text, without waiting for the result.
    AnnounceBeside(String, Unannounced),
}

/// Calls this closure when dropped, unless the text is known to have been sent.
pub(super) struct Unannounced(Option<Box<dyn Fn() + Send + Sync>>);

impl Unannounced {
    pub(super) fn new(call: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(call)))
    }

    /// Notes that the text was sent.
    pub(super) fn announced(mut self) {
        self.0 = None;
    }
}

impl Drop for Unannounced {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call();
        }
    }
}

impl fmt::Debug for Unannounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unannounced")
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
    /// The commit, before the last statement, which flushes if there is something to flush.
    FlushLast,
}

impl Then {
    pub(super) fn commit(flushes: bool) -> Self {
        if flushes { Self::Flush } else { Self::Commit }
    }

    /// Returns the statements before the commit, and those after it.
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
