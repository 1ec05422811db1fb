//! One connection: opened with its pragmas, rolled back after every error, reopened if that fails.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, ReentrantMutex};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::{commit_error, store_error};
use super::log::{self, Log};
use super::options::SqliteOptions;
use super::probe;
use super::schema;
use super::upgrade::{migrate, pass_gate};
use crate::error::{Error, Result, StoreError, StoreErrorKind, StoreResult};
use crate::store::{TxMode, nested};

/// More than the number of the store's statements.
const STATEMENTS: usize = 128;

/// The page cache, in KiB (negative, as SQLite expects).
const CACHE_KIB: i64 = -(32 << 10);

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Memory,
}

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Writes, and in memory also reads.
    Writer,
    /// Refuses to write.
    Reader,
}

/// A connection that is opened on demand.
#[derive(Debug)]
pub(super) struct Session {
    place: Place,
    role: Role,
    options: SqliteOptions,
    /// Borrowed while a transaction is open, so that a nested one on the same thread is detected.
    conn: ReentrantMutex<RefCell<Option<Connection>>>,
    /// `None` if the session does not write to a file.
    log: Option<Mutex<Log>>,
}

impl Session {
    /// Creates a session that connects at its first use.
    pub(super) fn lazy(place: Place, role: Role, options: SqliteOptions) -> Self {
        Self { place, role, options, conn: ReentrantMutex::default(), log: None }
    }

    /// Opens a session on a database, which is created or migrated if necessary.
    pub(super) fn create(place: Place, options: SqliteOptions) -> StoreResult<Self> {
        check_library(rusqlite::version_number())?;
        let conn = match &place {
            Place::File(path) => {
                probe::look(path, &options.prefix)?;
                connect(path, options.may_migrate(), &options)?
            }
            Place::Memory => Connection::open_in_memory().map_err(store_error)?,
        };
        tune(&conn, &options)?;
        let mut log = None;
        if let Place::File(path) = &place {
            // A refused database must be left unchanged, so this comes before the journal mode is touched.
            match options.may_migrate() {
                true => schema::inspect(&conn, &options.prefix).map(drop)?,
                false => schema::check(&conn, &options.prefix)?,
            }
            if !options.read_only {
                write_ahead(&conn, options.timeout())?;
                log = Some(Mutex::new(Log::of(path)));
            }
        }
        if place == Place::Memory || options.may_migrate() {
            migrate(&conn, &options.prefix)?;
        }
        let conn = ReentrantMutex::new(RefCell::new(Some(conn)));
        Ok(Self { place, role: Role::Writer, options, conn, log })
    }

    /// Runs `body` between BEGIN and COMMIT. Whatever fails, the next call finds a connection outside a
    /// transaction.
    pub(super) fn transact(&self, mode: TxMode, body: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        let timeout = self.options.timeout();
        let lock = self.conn.try_lock_for(timeout).ok_or_else(|| {
            let text = format!("other threads used the connection for {timeout:?}: call again");
            StoreError::new(StoreErrorKind::Busy, text)
        })?;
        let Ok(mut slot) = lock.try_borrow_mut() else { return Err(nested().into()) };
        if slot.is_none() {
            *slot = Some(self.reconnect()?);
        }
        let healer = Healer { slot: &mut slot, place: &self.place };
        let Some(conn) = healer.slot.as_ref() else {
            return Err(StoreError::new(StoreErrorKind::Backend, "the connection is lost").into());
        };
        // A transaction that may write takes the lock first, because one that has already read could not wait for
        // it.
        let begin = if mode == TxMode::Write { "BEGIN IMMEDIATE" } else { "BEGIN" };
        execute(conn, begin).map_err(store_error)?;
        // No one else has a database in memory.
        if self.place != Place::Memory {
            pass_gate(conn, &self.options.prefix).map_err(StoreError::from)?;
        }
        body(conn)?;
        if conn.is_autocommit() {
            let text =
                "SQLite rolled the transaction back after an error that its body passed over: call again";
            return Err(StoreError::new(StoreErrorKind::Backend, text).into());
        }
        execute(conn, "COMMIT").map_err(|error| {
            let is_known = !conn.is_autocommit() || mode == TxMode::Read;
            Error::Store(if is_known { store_error(error) } else { commit_error(error) })
        })?;
        if mode == TxMode::Write
            && let (Some(log), Some(conn)) = (&self.log, healer.slot.as_mut())
        {
            log.lock().committed(conn, timeout);
        }
        Ok(())
    }

    fn reconnect(&self) -> StoreResult<Connection> {
        let Place::File(path) = &self.place else {
            let text = "the database in memory is lost: open a new store";
            return Err(StoreError::new(StoreErrorKind::Backend, text));
        };
        let conn = connect(path, false, &self.options)?;
        tune(&conn, &self.options)?;
        if !schema::inspect(&conn, &self.options.prefix)?.is_current() {
            let text = format!("{} lost its tables since it was opened: open it anew", path.display());
            return Err(StoreError::new(StoreErrorKind::Schema, text));
        }
        if self.role == Role::Reader {
            conn.pragma_update(None, "query_only", true).map_err(store_error)?;
        }
        Ok(conn)
    }

    /// Gives tests access to the connection, to inspect it or make it fail.
    #[cfg(test)]
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Option<Connection>) -> T) -> T {
        look(&mut self.conn.lock().borrow_mut())
    }
}

/// Rolls back an open transaction when dropped, even in a panic.
struct Healer<'a> {
    slot: &'a mut Option<Connection>,
    place: &'a Place,
}

impl Drop for Healer<'_> {
    fn drop(&mut self) {
        let Some(conn) = self.slot else { return };
        let healed = conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok() || conn.is_autocommit();
        // A database in memory exists only in this connection, so all that can be done is to try again.
        if !healed && (*self.place != Place::Memory || conn.execute_batch("ROLLBACK").is_err()) {
            *self.slot = None;
        }
    }
}

fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn connect(path: &Path, creates: bool, options: &SqliteOptions) -> StoreResult<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags |= match options.read_only {
        true => OpenFlags::SQLITE_OPEN_READ_ONLY,
        false => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, creates);
    let conn = Connection::open_with_flags(path, flags).map_err(store_error)?;
    conn.busy_timeout(options.timeout()).map_err(store_error)?;
    Ok(conn)
}

/// The oldest SQLite that supports the statements' SQL: 3.38.0.
const OLDEST: i32 = 3_038_000;

/// Refuses a library that is too old. Only a library of the system can be.
pub(super) fn check_library(version: i32) -> StoreResult<()> {
    if version >= OLDEST {
        return Ok(());
    }
    let (major, minor) = (version / 1_000_000, version / 1_000 % 1_000);
    let text =
        format!("SQLite {major}.{minor} is older than 3.38: update it, or build with the feature `bundled`");
    Err(StoreError::new(StoreErrorKind::Backend, text))
}

/// Sets pragmas of the connection, not of the file.
fn tune(conn: &Connection, options: &SqliteOptions) -> StoreResult<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // If SQLite has samples of values, it plans a statement again whenever other values are bound, which costs a
    // fifth of a tick. Each statement here has one good plan for all values.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(store_error)?;
    let set = |name, value: i64| conn.pragma_update(None, name, value).map_err(store_error);
    set("cache_size", CACHE_KIB)?;
    conn.pragma_update_and_check(None, "journal_size_limit", log::KEPT, |_| Ok(())).map_err(store_error)?;
    // A statement that fires triggers copies each page that it changes, so that it can be undone separately. If the
    // copies are in a file, they cost half of a call that changes many lanes.
    conn.pragma_update(None, "temp_store", "MEMORY").map_err(store_error)?;
    conn.pragma_update(None, "synchronous", options.pragma()).map_err(store_error)
}

/// Turns write-ahead logging on. SQLite does not wait for other connections when it does this, so this function
/// does.
fn write_ahead(conn: &Connection, timeout: Duration) -> StoreResult<()> {
    let deadline = Instant::now().checked_add(timeout);
    loop {
        let mode: rusqlite::Result<String> = conn
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .and_then(|mode: String| match mode.as_str() {
                "wal" => Ok(mode),
                _ => conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)),
            });
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let text =
                    format!("the file system allows only journal mode {mode}, not WAL: use a local one");
                return Err(StoreError::new(StoreErrorKind::Backend, text));
            }
            Err(error) => {
                let error = store_error(error);
                if error.kind() != StoreErrorKind::Busy
                    || deadline.is_some_and(|deadline| Instant::now() >= deadline)
                {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_too_old_is_named() {
        assert!(
            check_library(3_037_002).unwrap_err().to_string().starts_with("SQLite 3.37 is older than 3.38")
        );
        assert!(check_library(OLDEST).is_ok());
    }
}
