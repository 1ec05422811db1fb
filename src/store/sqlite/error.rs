//! What SQLite's result codes mean to the caller.

use rusqlite::ErrorCode;
use rusqlite::ffi;
use rusqlite::types::FromSqlError;

use crate::error::{Invalid, StoreError, StoreErrorKind};
use crate::store::sql::codes::UnknownCode;
use crate::store::sql::row::Damaged;

/// What goes wrong inside an operation.
#[derive(Debug)]
pub(in crate::store) enum Fault {
    /// SQLite refused a statement; part of the operation may have been done.
    Sqlite(rusqlite::Error),
    /// A row holds a value that the store never wrote.
    Damaged(String),
    /// The arguments were refused before anything was done.
    Refused(StoreError),
}

/// The result of a part of an operation.
pub(super) type Outcome<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<FromSqlError> for Fault {
    fn from(error: FromSqlError) -> Self {
        Self::Damaged(error.to_string())
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
            Fault::Sqlite(error) => store_error(error),
            Fault::Damaged(what) => Self::new(
                StoreErrorKind::Corrupt,
                format!("a stored row cannot be read: {what}: restore a backup"),
            ),
            Fault::Refused(error) => error,
        }
    }
}

/// Converts a driver error. For hosts that run their own statements beside the store's.
///
/// # Examples
///
/// ```
/// use stationmaster::error::StoreErrorKind;
/// use stationmaster::store::sqlite::{rusqlite::Connection, store_error};
/// let conn = Connection::open_in_memory()?;
/// conn.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1)")?;
/// let error = conn.execute("INSERT INTO orders VALUES (1)", []).map_err(store_error).unwrap_err();
/// assert_eq!(error.kind(), StoreErrorKind::Conflict);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn store_error(error: rusqlite::Error) -> StoreError {
    let (kind, what) = classify(&error);
    StoreError::new(kind, format!("{what} ({error})")).with_source(error)
}

/// Converts an error of COMMIT. For hosts whose transactions the store took part in.
///
/// A full disk stops a commit before its last frame, and another connection's lock stops it before its first.
/// So after these errors the commit is known not to have taken effect. After any other error this is unknown:
/// [`StoreErrorKind::Indeterminate`].
pub fn commit_error(error: rusqlite::Error) -> StoreError {
    if matches!(classify(&error).0, StoreErrorKind::Full | StoreErrorKind::Busy) {
        return store_error(error);
    }
    let text =
        format!("the commit failed and may have taken effect: ask the store before trying again ({error})");
    StoreError::new(StoreErrorKind::Indeterminate, text).with_source(error)
}

/// Returns SQLite's result code, even for an error in a statement's text, which older drivers report
/// separately.
pub(super) fn code(error: &rusqlite::Error) -> Option<ffi::Error> {
    let behind = || std::error::Error::source(error)?.downcast_ref::<ffi::Error>();
    error.sqlite_error().or_else(behind).copied()
}

/// Returns true if a statement names a table that does not exist.
pub(super) fn is_missing(error: &rusqlite::Error) -> bool {
    classify(error).0 == StoreErrorKind::Schema
}

fn classify(error: &rusqlite::Error) -> (StoreErrorKind, &'static str) {
    use rusqlite::Error as E;
    if let Some(code) = code(error) {
        return classify_code(code, &error.to_string());
    }
    match error {
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::Utf8Error(..) => (StoreErrorKind::Corrupt, "a stored row cannot be read: restore a backup"),
        _ => (StoreErrorKind::Backend, "SQLite could not be used"),
    }
}

fn classify_code(error: ffi::Error, message: &str) -> (StoreErrorKind, &'static str) {
    match error.code {
        _ if error.extended_code == ffi::SQLITE_BUSY_SNAPSHOT => (
            StoreErrorKind::Busy,
            "another writer came between the first read of this transaction and its first write: \
             roll back, and begin it with BEGIN IMMEDIATE",
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            (StoreErrorKind::Busy, "another writer holds the database: call again, or raise the busy timeout")
        }
        ErrorCode::DiskFull => {
            (StoreErrorKind::Full, "no space is left for the database: make space and call again")
        }
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::FileLockingProtocolFailed => (
            StoreErrorKind::Io,
            "the database file cannot be used: check that it and its folder are there and writable",
        ),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => (
            StoreErrorKind::Corrupt,
            "the file is damaged or no SQLite database: restore a backup, or name another",
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => (
            StoreErrorKind::ReadOnly,
            "the database can only be read: write in a write transaction, to a writable file",
        ),
        ErrorCode::ConstraintViolation
            if matches!(
                error.extended_code,
                ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
            ) =>
        {
            (StoreErrorKind::Conflict, "another writer was first: call again")
        }
        ErrorCode::OperationInterrupted => {
            (StoreErrorKind::Backend, "the operation was interrupted and rolled back: call again")
        }
        _ if message.contains("no such table: ") || message.contains("no such index: ") => (
            StoreErrorKind::Schema,
            "the tables of this version of the crate are not there: if a newer version has changed them, stop this \
                 process and start one of that version; if there are none, create them with `sqlite::migrate`",
        ),
        _ => (StoreErrorKind::Backend, "SQLite refused a statement"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: std::ffi::c_int) -> StoreErrorKind {
        store_error(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind()
    }

    #[test]
    fn codes_are_grouped_by_what_the_caller_can_do() {
        use StoreErrorKind as K;
        assert_eq!(kind(ffi::SQLITE_BUSY), K::Busy);
        assert_eq!(kind(ffi::SQLITE_BUSY_SNAPSHOT), K::Busy);
        assert_eq!(kind(ffi::SQLITE_LOCKED), K::Busy);
        assert_eq!(kind(ffi::SQLITE_FULL), K::Full);
        assert_eq!(kind(ffi::SQLITE_IOERR_FSYNC), K::Io);
        assert_eq!(kind(ffi::SQLITE_CANTOPEN), K::Io);
        assert_eq!(kind(ffi::SQLITE_CORRUPT), K::Corrupt);
        assert_eq!(kind(ffi::SQLITE_NOTADB), K::Corrupt);
        assert_eq!(kind(ffi::SQLITE_READONLY_DIRECTORY), K::ReadOnly);
        assert_eq!(kind(ffi::SQLITE_CONSTRAINT_UNIQUE), K::Conflict);
        assert_eq!(kind(ffi::SQLITE_CONSTRAINT_DATATYPE), K::Backend);
        assert_eq!(kind(ffi::SQLITE_INTERRUPT), K::Backend);
    }

    #[test]
    fn a_failed_commit_is_open_unless_the_medium_was_full_or_locked() {
        let of = |code| commit_error(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind();
        assert_eq!(of(ffi::SQLITE_FULL), StoreErrorKind::Full);
        assert_eq!(of(ffi::SQLITE_BUSY), StoreErrorKind::Busy);
        assert_eq!(of(ffi::SQLITE_IOERR_FSYNC), StoreErrorKind::Indeterminate);
        assert_eq!(of(ffi::SQLITE_INTERRUPT), StoreErrorKind::Indeterminate);
    }
}
