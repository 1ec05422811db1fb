//! Inspects a file before it is opened for writing. A foreign file stays unchanged, byte for byte.
//!
//! Only SQLite may open the file. Closing any descriptor of a file drops every lock that the process holds on
//! it, including those of its other connections. SQLite postpones such a close while one of them needs its
//! locks; `File` does not.
//!
//! Even a read-only connection leaves files beside a database in WAL mode. So the file is first read as
//! immutable, which takes no lock and creates no file. That read can collide with a writer. It counts only if
//! the file did not change meanwhile and has neither log nor journal. Otherwise the file is read again, with
//! locks. In either case the permanent connection checks again.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::{Fault, Outcome, code};
use super::prefix::Prefix;
use super::schema::{self, Found};
use crate::error::{StoreError, StoreErrorKind, StoreResult};

/// Refuses a file that is not a SQLite database, or that holds a newer or foreign schema under the prefix.
pub(super) fn look(path: &Path, prefix: &Prefix) -> StoreResult<()> {
    // SQLite follows links, and keeps log and journal beside the target file.
    let real = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error(path, error)),
    };
    let before = Trace::of(&real)?;
    if before.bytes == 0 {
        return Ok(());
    }
    let found = look_with(&real, "?immutable=1", prefix);
    // Writers never change what makes a file a database, so a collision cannot look like this.
    if let Err(Fault::Sqlite(error)) = &found
        && code(error).is_some_and(|code| code.code == ErrorCode::NotADatabase)
    {
        let text = format!("{} is no SQLite database: it was left untouched: name another", path.display());
        return Err(StoreError::new(StoreErrorKind::Corrupt, text));
    }
    if before.is_quiet() && Trace::of(&real)? == before {
        return Ok(found.map(drop)?);
    }
    match look_with(&real, "?mode=ro", prefix).map_err(StoreError::from) {
        // The last writer died, and only a connection that may write can clean up.
        Err(error) if error.kind() == StoreErrorKind::ReadOnly => Ok(()),
        found => found.map(drop),
    }
}

fn look_with(path: &Path, query: &str, prefix: &Prefix) -> Outcome<Found> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(uri(path) + query, flags).map_err(|error| {
        let text = format!("{} cannot be opened: check that it may be read", path.display());
        Fault::Refused(StoreError::new(StoreErrorKind::Io, text).with_source(error))
    })?;
    schema::inspect(&conn, prefix)
}

/// What is known about a database without opening it.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    bytes: u64,
    written: Option<SystemTime>,
    log: u64,
    journal: u64,
}

impl Trace {
    fn of(path: &Path) -> StoreResult<Self> {
        let file = std::fs::metadata(path).map_err(|error| io_error(path, error))?;
        if !file.is_file() {
            let text = format!("{} is no file: name one", path.display());
            return Err(StoreError::new(StoreErrorKind::Io, text));
        }
        Ok(Self {
            bytes: file.len(),
            written: file.modified().ok(),
            log: bytes_beside(path, "-wal"),
            journal: bytes_beside(path, "-journal"),
        })
    }

    /// Returns true if all commits are in the file itself, and no writer has started.
    fn is_quiet(&self) -> bool {
        self.log == 0 && self.journal == 0
    }
}

/// Returns the length of a file that SQLite keeps beside a database; 0 if it does not exist.
pub(super) fn bytes_beside(path: &Path, suffix: &str) -> u64 {
    let mut name = OsString::from(path);
    name.push(suffix);
    std::fs::metadata(name).map_or(0, |file| file.len())
}

fn io_error(path: &Path, error: std::io::Error) -> StoreError {
    let text = format!("{} cannot be read: {error}", path.display());
    StoreError::new(StoreErrorKind::Io, text).with_source(error)
}

/// Returns the path as a SQLite URI, with every special byte escaped.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    if cfg!(windows) {
        uri.push('/');
    }
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(byte)),
            b'\\' if cfg!(windows) => uri.push('/'),
            b':' if cfg!(windows) => uri.push(':'),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_database_whose_writer_died_is_left_to_a_connection_that_can_clean_up() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = dir.path().join("app.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(
            "CREATE TABLE app (x); INSERT INTO app VALUES (zeroblob(100000)); PRAGMA cache_size = 1;
             BEGIN; UPDATE app SET x = zeroblob(99999); INSERT INTO app VALUES (zeroblob(500000))",
        )
        .unwrap();
        // Another process copies, because closing the files in this one would cost the connection its locks.
        let files = ["app.db", "app.db-journal"].map(|name| dir.path().join(name));
        let done = std::process::Command::new("cp").args(files).arg(copy.path()).status().unwrap();
        assert!(done.success());
        let path = copy.path().join("app.db");
        let refused = StoreError::from(look_with(&path, "?mode=ro", &Prefix::default()).unwrap_err());
        assert_eq!(refused.kind(), StoreErrorKind::ReadOnly);
        look(&path, &Prefix::default()).unwrap();
        crate::store::SqliteStore::open(&path, crate::store::sqlite::SqliteOptions::new()).unwrap();
        let conn = Connection::open(&path).unwrap();
        let size: i64 = conn.query_row("SELECT length(x) FROM app", [], |row| row.get(0)).unwrap();
        assert_eq!(size, 100_000, "what the dead writer had begun is undone");
    }

    #[test]
    fn a_name_full_of_signs_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b?c#d%41&é.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE sm_task (x)").unwrap();
        drop(conn);
        assert_eq!(look(&path, &Prefix::default()).unwrap_err().kind(), StoreErrorKind::Schema);
        look(&path, &Prefix::new("x_").unwrap()).unwrap();
    }
}
