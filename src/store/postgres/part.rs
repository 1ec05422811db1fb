//! The messages of a request, by what their failure means.

use std::time::Duration;

use tokio_postgres::Error as PgError;

use super::error::{Failure, commit_error, flush_error, is_fatal, open_commit, unsettled};
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
    /// Commits. It may also be a statement that is sent alone, and which may only wait for others.
    Commit { waits: bool },
    /// Flushes what the commit did not wait for.
    Flush,
}

impl Part {
    /// Interprets an error of this part, when `then` was to follow all statements.
    pub(super) fn failure(self, error: PgError, then: Then, took: Duration, limit: Duration) -> Failure {
        match self {
            // What only waits is not too much, however long it took.
            Self::Commit { waits } => commit_error(error, took, if waits { Duration::ZERO } else { limit }),
            Self::Flush => flush_error(error),
            // The server may have continued, and committed.
            _ if then != Then::More && error.as_db_error().is_none() => {
                Failure::Lost(open_commit(&error).with_source(error))
            }
            Self::Setting if !is_fatal(&error) => unsettled(error),
            Self::Setting => Failure::of(error),
            Self::Opening | Self::Work { waits: true } => Failure::of_waiting(error),
            Self::Work { waits: false } => Failure::of_limited(error, took, limit),
        }
    }
}
