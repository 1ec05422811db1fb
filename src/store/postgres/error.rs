//! Interprets PostgreSQL's responses for the caller.

use std::error::Error as StdError;
use std::time::Duration;

use tokio_postgres::Error as PgError;
use tokio_postgres::error::{Severity, SqlState};

use crate::error::{Error, Invalid, StoreError, StoreErrorKind};
use crate::store::sql::codes::UnknownCode;
use crate::store::sql::row::Damaged;

/// Why statements failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused one. The transaction is lost, but not the connection.
    Refused(StoreError),
    /// The connection is lost, or cannot be made.
    Lost(StoreError),
    /// Nothing was heard from the server for too long: the connection must be given up.
    Silent(StoreError),
}

impl Failure {
    pub(super) fn lost(message: impl Into<String>) -> Self {
        Self::Lost(StoreError::new(StoreErrorKind::Io, message))
    }

    /// Creates the failure of a server that was silent for this long.
    pub(super) fn silent(patience: Duration) -> Self {
        let text =
            format!("the server did not answer in {patience:?}: the connection was given up, call again");
        Self::Silent(StoreError::new(StoreErrorKind::Io, text))
    }

    /// Converts the driver's error for a statement that was sent with others `took` ago, if the server ends
    /// each after `limit`. The server reports a timeout and an operator's cancellation with the same code,
    /// and distinguishes them only in a localised text. But a statement that the limit ended has run for that
    /// long.
    pub(super) fn of_limited(error: PgError, took: Duration, limit: Duration) -> Self {
        let is_limit = !limit.is_zero() && took >= limit;
        if error.code() != Some(&SqlState::QUERY_CANCELED) || is_limit {
            return Self::of(error);
        }
        let text = format!("the statement was cancelled on the server: call again ({})", text(&error));
        Self::Refused(StoreError::new(StoreErrorKind::Busy, text).with_source(error))
    }

    /// Converts the driver's error for preparing a statement, or for beginning a transaction. There only a
    /// wait for another transaction's lock can take long, whichever limit ends it.
    pub(super) fn of_waiting(error: PgError) -> Self {
        if error.code() != Some(&SqlState::QUERY_CANCELED) {
            return Self::of(error);
        }
        let text = format!("{WAITED} ({})", text(&error));
        Self::Refused(StoreError::new(StoreErrorKind::Busy, text).with_source(error))
    }

    /// Converts the driver's error for a statement.
    pub(super) fn of(error: PgError) -> Self {
        match is_fatal(&error) {
            true => Self::Lost(store_error(error)),
            false => Self::Refused(store_error(error)),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let (Failure::Refused(error) | Failure::Lost(error) | Failure::Silent(error)) = failure;
        error
    }
}

/// What can fail inside an operation.
#[derive(Debug)]
pub(in crate::store) enum Fault {
    /// The server did not do it, and the transaction is lost.
    Server(StoreError),
    /// A row holds a value that the store never wrote.
    Damaged(String),
    /// The arguments were refused before anything was done.
    Refused(StoreError),
}

/// The result of a part of an operation.
pub(super) type Outcome<T> = Result<T, Fault>;

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Server(failure.into())
    }
}

/// Only reading a row returns the driver's own error.
impl From<PgError> for Fault {
    fn from(error: PgError) -> Self {
        Self::Damaged(text(&error))
    }
}

impl From<Invalid> for Fault {
    fn from(error: Invalid) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<Damaged> for Fault {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged.0)
    }
}

impl From<UnknownCode> for Fault {
    fn from(error: UnknownCode) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Server(error) | Fault::Refused(error) => error,
            Fault::Damaged(what) => Self::new(
                StoreErrorKind::Corrupt,
                format!("a stored row cannot be read: {what}: restore a backup"),
            ),
        }
    }
}

/// Converts the error of one of the host's statements, so that `?` makes it the same type as the verbs'
/// errors. Deadlocks and serialization failures are [`Conflict`](StoreErrorKind::Conflict), also of a commit.
/// A lost connection is [`Indeterminate`](StoreErrorKind::Indeterminate), because it may have been
/// committing. A violated constraint is [`Backend`](StoreErrorKind::Backend): it would be violated again.
impl From<PgError> for Error {
    fn from(error: PgError) -> Self {
        let (kind, what) = match error.code().map_or("", SqlState::code) {
            // Errors of a connection that could not be made.
            "28P01" | "28000" | "3D000" | "53300" => classify(&error),
            _ if is_fatal(&error) => (StoreErrorKind::Indeterminate, LOST),
            // In the crate's statements these mean something else. See `classify`.
            "23505" | "42501" | "42P01" | "3F000" | "42703" | "42883" => (StoreErrorKind::Backend, REFUSED),
            _ => classify(&error),
        };
        StoreError::new(kind, format!("{what} ({})", text(&error))).with_source(error).into()
    }
}

/// Returns an error's text with its sources, which the driver's own text omits.
fn text(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(cause) = behind {
        text = format!("{text}: {cause}");
        behind = cause.source();
    }
    text
}

/// Converts an error of a statement, or of connecting.
pub(super) fn store_error(error: PgError) -> StoreError {
    let (kind, what) = classify(&error);
    StoreError::new(kind, format!("{what} ({})", text(&error))).with_source(error)
}

/// Converts the error of a COMMIT, like [`Failure::of_limited`]. A refused commit is undone. Otherwise the
/// outcome is unknown.
pub(super) fn commit_error(error: PgError, took: Duration, limit: Duration) -> Failure {
    if error.as_db_error().is_none() || is_fatal(&error) {
        return Failure::Lost(open_commit(text(&error)).with_source(error));
    }
    Failure::of_limited(error, took, limit)
}

/// Converts the error of the flush that a commit did not wait for. Whether the commit is durable is unknown.
pub(super) fn flush_error(error: PgError) -> Failure {
    let why = text(&error);
    let text = format!(
        "the commit took effect, but whether the server has it on its disk is not known: repeat the same call ({why})"
    );
    Failure::Lost(StoreError::new(StoreErrorKind::Indeterminate, text).with_source(error))
}

/// Returns the error of a COMMIT that got no response.
pub(super) fn open_commit(why: impl std::fmt::Display) -> StoreError {
    let text = format!(
        "the connection was lost during a commit, which may have taken effect: repeat the same call, which waits for the first one ({why})"
    );
    StoreError::new(StoreErrorKind::Indeterminate, text)
}

/// Returns the error of a setting of the session that the server refused to change. What was sent behind it may have
/// run outside its transaction.
pub(super) fn unsettled(error: PgError) -> Failure {
    let text = format!(
        "a setting of the session could not be changed, so the call may have taken effect: repeat the same call ({})",
        text(&error)
    );
    Failure::Lost(StoreError::new(StoreErrorKind::Indeterminate, text).with_source(error))
}

/// Returns true if the connection is no longer usable.
pub(super) fn is_fatal(error: &PgError) -> bool {
    match error.as_db_error() {
        Some(answer) => match answer.parsed_severity() {
            Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
            // Servers send it in the local language and in English. Poolers, which respond in place of a lost
            // server, send less, and older ones only call it an error.
            None => {
                matches!(answer.severity(), "FATAL" | "PANIC")
                    || ["08", "57P"].iter().any(|class| answer.code().code().starts_with(class))
            }
        },
        // The connection is not to blame for what the client itself refused to send. The crate's statements
        // never cause that.
        None => error.is_closed() || error.source().is_none_or(|source| source.is::<std::io::Error>()),
    }
}

/// Returns true if the error may pass soon: the server is starting or stopping, or has too many clients.
pub(super) fn is_passing(error: &(dyn StdError + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<PgError>() else {
        return error.downcast_ref::<StoreError>().and_then(StdError::source).is_some_and(is_passing);
    };
    match error.code() {
        Some(code) => [
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
        ]
        .contains(code),
        None => is_fatal(error),
    }
}

/// Returns true if this may be a read-only server's response to the BEGIN of a transaction that writes. A
/// standby refuses `READ WRITE` and `SERIALIZABLE` as features that it does not have.
pub(super) fn is_of_standby(error: &StoreError) -> bool {
    let code = error.source().and_then(|source| source.downcast_ref::<PgError>()).and_then(PgError::code);
    error.kind() == StoreErrorKind::ReadOnly || code == Some(&SqlState::FEATURE_NOT_SUPPORTED)
}

const LOST: &str =
    "the connection to PostgreSQL was lost, and with it the transaction, unless it was being committed";
const REFUSED: &str = "PostgreSQL refused a statement";
const WAITED: &str = "another transaction holds what this one needs: call again, or raise the lock timeout";

fn classify(error: &PgError) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind as K;
    let Some(code) = error.code() else {
        return match is_fatal(error) {
            true => {
                (K::Io, "the connection to PostgreSQL was lost: check that the server runs, and call again")
            }
            false => (K::Backend, "PostgreSQL could not be asked"),
        };
    };
    match code.code() {
        "40001" | "40P01" => (K::Conflict, "another writer was first: call again"),
        "23505" => (K::Conflict, "another writer was first: call again"),
        "55P03" => (K::Busy, WAITED),
        "57014" => (
            K::TooMuch,
            "the statement took longer than the server's limit: do less in one call, or raise statement_timeout",
        ),
        "53300" => (K::Busy, "the server has too many connections: call again, or raise max_connections"),
        "53100" => (K::Full, "no space is left for the database: make space and call again"),
        "25006" => {
            (K::ReadOnly, "the database can only be read: write in a write transaction, to a primary server")
        }
        "42501" => (K::Backend, "the role may not do this: grant it what docs/postgresql.md lists"),
        "42P01" | "3F000" | "42703" | "42883" => (
            K::Schema,
            "the tables of this version of the crate are not there: if a newer version has changed them, stop this \
             process and start one of that version; if there are none, create them with `postgres::migrate`",
        ),
        "XX001" | "XX002" => (K::Corrupt, "the database is damaged: restore a backup"),
        "28P01" | "28000" | "3D000" => {
            (K::Backend, "the server let nobody in: check the role, its password and the database")
        }
        "25P03" | "25P04" => (
            K::Io,
            "the server ended a transaction that was open for too long: call again, and do less in between",
        ),
        code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("58") => {
            (K::Io, "the server ended the connection or cannot be used: check that it runs, and call again")
        }
        _ => (K::Backend, REFUSED),
    }
}
