//! A look at a file before it is opened to be written: what is not ours stays as it is, byte for byte.
//!
//! SQLite leaves files beside a database in WAL mode even when it opens it to read only. So a database whose log is
//! empty is read as immutable, which takes no lock and makes no file. Another process may be writing at that very
//! moment; what was read is therefore only believed if no log has appeared meanwhile, and everything is looked at again
//! by the connection that stays.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::error::store_error;
use super::prefix::Prefix;
use super::schema::{self, Found};
use crate::error::{StoreError, StoreErrorKind, StoreResult};

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER: usize = 100;
/// Where the header says that the file is in WAL mode, and the value that says so.
const VERSIONS: std::ops::Range<usize> = 18..20;
const WAL: u8 = 2;

/// Refuses a file that is no SQLite database, or that holds a newer or foreign schema under the prefix.
pub(super) fn look(path: &Path, prefix: &Prefix) -> StoreResult<Found> {
    let Some(header) = header(path)? else { return Ok(Found::Nothing) };
    let real = std::fs::canonicalize(path).map_err(|error| io_error(path, error))?;
    if header[VERSIONS].contains(&WAL) && !has_log(&real) {
        let found = look_with(&real, "?immutable=1", prefix);
        if found.is_ok() || !has_log(&real) {
            return found;
        }
    }
    match look_with(&real, "?mode=ro", prefix) {
        // Its last writer died, and only a connection that may write can clean up after it.
        Err(error) if error.kind() == StoreErrorKind::ReadOnly => Ok(Found::Nothing),
        found => found,
    }
}

fn look_with(path: &Path, query: &str, prefix: &Prefix) -> StoreResult<Found> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(uri(path) + query, flags).map_err(store_error)?;
    Ok(schema::inspect(&conn, prefix)?)
}

/// The first bytes of the database; none if there is no file, or nothing in it.
fn header(path: &Path) -> StoreResult<Option<[u8; HEADER]>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path, error)),
    };
    let mut read = Vec::with_capacity(HEADER);
    file.take(HEADER as u64).read_to_end(&mut read).map_err(|error| io_error(path, error))?;
    if read.is_empty() {
        return Ok(None);
    }
    match <[u8; HEADER]>::try_from(read) {
        Ok(header) if header.starts_with(MAGIC) => Ok(Some(header)),
        _ => {
            let text =
                format!("{} is no SQLite database: it was left untouched: name another", path.display());
            Err(StoreError::new(StoreErrorKind::Corrupt, text))
        }
    }
}

fn io_error(path: &Path, error: std::io::Error) -> StoreError {
    let text = format!("{} cannot be read: {error}", path.display());
    StoreError::new(StoreErrorKind::Io, text).with_source(error)
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(PathBuf::from(log)).is_ok_and(|log| log.len() > 0)
}

/// The path as a URI of SQLite's, every byte that could mean something escaped.
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
        for name in ["app.db", "app.db-journal"] {
            std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        let path = copy.path().join("app.db");
        let refused = look_with(&path, "?mode=ro", &Prefix::default()).unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::ReadOnly);
        assert_eq!(look(&path, &Prefix::default()).unwrap(), Found::Nothing);
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
        assert_eq!(look(&path, &Prefix::new("x_").unwrap()).unwrap(), Found::Nothing);
    }
}
