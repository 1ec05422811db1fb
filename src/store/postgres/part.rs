//! The messages of a request, by what their failure means.

use std::time::Duration;

use tokio_postgres::Error as PgError;

use super::error::{Failure, commit_error, flush_error, open_commit};
use super::request::Then;

/// What a message does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// Changes a setting of the session.
    Setting,
    /// Reads the clock, or begins a transaction.
    Opening,
    /// Runs a statement, which may only wait for others.
    Work { waits: bool },
    /// Commits. It may also be a statement that is sent alone.
    Commit,
    /// Flushes what the commit did not wait for.
    Flush,
}

impl Part {
    /// Interprets an error of this part, when `then` was to follow all statements.
    pub(super) fn failure(self, error: PgError, then: Then, took: Duration, limit: Duration) -> Failure {
        // The server may have continued, and committed.
        let may_commit =
            then != Then::More && (error.as_db_error().is_none() || matches!(self, Self::Setting));
        match self {
            Self::Commit => commit_error(error, took, limit),
            Self::Flush => flush_error(error),
            _ if may_commit => Failure::Lost(open_commit(&error).with_source(error)),
            // The session must not be used with another setting than it is thought to have.
            Self::Setting => Failure::Lost(Failure::of(error).into()),
            Self::Opening | Self::Work { waits: true } => Failure::of_waiting(error),
            Self::Work { waits: false } => Failure::of_limited(error, took, limit),
        }
    }
}
