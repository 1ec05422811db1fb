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
use super::schema::{self, Found};
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
    /// `None` for what does not write to a file.
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
                connect(path, OpenFlags::SQLITE_OPEN_CREATE, &options)?
            }
            Place::Memory => Connection::open_in_memory().map_err(store_error)?,
        };
        tune(&conn, &options)?;
        // A refused database must be left unchanged, so this comes before the journal mode is touched.
        let found = schema::inspect(&conn, &options.prefix)?;
        let log = match &place {
            Place::File(path) => {
                write_ahead(&conn, options.timeout())?;
                Some(Mutex::new(Log::of(path)))
            }
            Place::Memory => None,
        };
        if found != Found::Current {
            migrate(&conn, &options.prefix)?;
        }
        let conn = ReentrantMutex::new(RefCell::new(Some(conn)));
        Ok(Self { place, role: Role::Writer, options, conn, log })
    }

    /// Runs `body` between BEGIN and COMMIT. Whatever goes wrong, the next call finds a connection outside a
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
        // A transaction that may write takes the lock first: one that has read could not wait for it.
        let begin = if mode == TxMode::Write { "BEGIN IMMEDIATE" } else { "BEGIN" };
        execute(conn, begin).map_err(store_error)?;
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
        let conn = connect(path, OpenFlags::empty(), &self.options)?;
        tune(&conn, &self.options)?;
        if schema::inspect(&conn, &self.options.prefix)? != Found::Current {
            let text = format!("{} lost its tables since it was opened: open it anew", path.display());
            return Err(StoreError::new(StoreErrorKind::Schema, text));
        }
        if self.role == Role::Reader {
            conn.pragma_update(None, "query_only", true).map_err(store_error)?;
        }
        Ok(conn)
    }

    /// For tests: gives access to the connection, to inspect it or make it fail.
    #[cfg(test)]
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Option<Connection>) -> T) -> T {
        look(&mut self.conn.lock().borrow_mut())
    }
}

/// Rolls back an open transaction when it goes out of scope, also in a panic.
struct Healer<'a> {
    slot: &'a mut Option<Connection>,
    place: &'a Place,
}

impl Drop for Healer<'_> {
    fn drop(&mut self) {
        let Some(conn) = self.slot else { return };
        let healed = conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok() || conn.is_autocommit();
        // A second try is all that can be done for a database that lives only in this connection.
        if !healed && (*self.place != Place::Memory || conn.execute_batch("ROLLBACK").is_err()) {
            *self.slot = None;
        }
    }
}

fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn connect(path: &Path, create: OpenFlags, options: &SqliteOptions) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
    let conn = Connection::open_with_flags(path, flags).map_err(store_error)?;
    conn.busy_timeout(options.timeout()).map_err(store_error)?;
    Ok(conn)
}

/// The oldest SQLite that supports the statements' SQL: 3.38.0.
const OLDEST: i32 = 3_038_000;

/// Refuses a library that is too old. Only one linked from the system can be.
fn check_library(version: i32) -> StoreResult<()> {
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
    // Where SQLite keeps samples of values, it plans a statement again each time other values are bound,
    // which costs a fifth of a tick. Each statement here has one good plan, whatever is bound.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(store_error)?;
    let set = |name, value: i64| conn.pragma_update(None, name, value).map_err(store_error);
    set("cache_size", CACHE_KIB)?;
    conn.pragma_update_and_check(None, "journal_size_limit", log::KEPT, |_| Ok(())).map_err(store_error)?;
    conn.pragma_update(None, "synchronous", options.pragma()).map_err(store_error)
}

/// Turns write-ahead logging on. SQLite does not wait for other connections there, so this does.
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

/// Creates or updates the store's tables on one of the host's connections.
///
/// Opens and commits its own transaction. Inside one of the host's, it takes part in that one. Touches no
/// pragma.
///
/// # Errors
///
/// [`StoreErrorKind::Schema`] if the tables were written by a newer version of the crate or by something
/// else, and any error from SQLite. Nothing was changed.
///
/// # Examples
///
/// ```
/// use stationmaster::store::sqlite::{Prefix, migrate, rusqlite::Connection};
/// let conn = Connection::open_in_memory()?;
/// migrate(&conn, &Prefix::default())?;
/// assert!(conn.table_exists(None, "sm_task")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn migrate(conn: &Connection, prefix: &super::Prefix) -> StoreResult<()> {
    check_library(rusqlite::version_number())?;
    if schema::inspect(conn, prefix)? == Found::Current {
        return Ok(());
    }
    let (begin, commit, undo) = if conn.is_autocommit() {
        ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")
    } else {
        let undo = "ROLLBACK TO stationmaster_migrate; RELEASE stationmaster_migrate";
        ("SAVEPOINT stationmaster_migrate", "RELEASE stationmaster_migrate", undo)
    };
    let was_open = !conn.is_autocommit();
    let done = (|| {
        conn.execute_batch(begin)?;
        schema::migrate_inside(conn, prefix)?;
        Ok(conn.execute_batch(commit)?)
    })();
    if done.is_err() && (was_open || !conn.is_autocommit()) {
        // The first error is the one to report. A failing undo leaves the host's transaction to the host.
        let _ = conn.execute_batch(undo);
    }
    done.map_err(|fault: super::error::Fault| fault.into())
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
