//! The SQLite store: one file, any number of processes.
//!
//! # Two ways to use it
//!
//! * [`SqliteStore`] opens a file and keeps its own connections: one that writes, one that reads. It sets
//!   pragmas on those only: write-ahead logging, `synchronous`, `temp_store`, a busy timeout.
//! * [`SqliteTx::attach`] does the same work inside a transaction that the host owns, so that the host's rows
//!   and the store's commit together or not at all. It begins nothing, commits nothing and touches no pragma.
//!
//! A host whose driver is not `rusqlite` inserts into views: `docs/sql.md`.
//!
//! Both work beside the host's tables. Every table and index begins with the [`Prefix`]. The record of
//! migrations is a table like the others; `user_version` stays the host's.
//!
//! # Guarantees
//!
//! * A write transaction begins with `BEGIN IMMEDIATE`: it never reads what another writer then changes. It
//!   waits up to the busy timeout for the writer lock. A long read blocks no writer, but makes the log grow:
//!   `docs/sql.md`.
//! * With overlapping reads the log stays near 128 MiB, if each read is short. Restarting it keeps writers
//!   out for at most half a second or the busy timeout, plus the time it takes to write to the disk. After an
//!   attempt that a read outlasted, this store waits a minute before the next one.
//! * After any error, and after a panic in the body, the transaction is rolled back and the store keeps
//!   working. A connection that cannot be rolled back is closed and opened again.
//! * A commit that fails although it may have taken effect returns [`StoreErrorKind::Indeterminate`]. Any
//!   other returns its cause.
//! * A file is refused if it is not a SQLite database, if it has foreign tables with the same prefix, or if a
//!   newer version of the crate has changed it so that this one cannot work beside it. It is then left
//!   untouched. Any other existing database is fine: the store's tables are added, and write-ahead logging is
//!   turned on.
//! * Opening a store leaves the file locks of the process's other connections in place, even if it is
//!   refused. A host that opens the file other than through SQLite drops those locks and loses commits:
//!   `docs/sql.md`.
//! * A transaction begun inside another one on the same thread is refused at once. The exception is a reader
//!   and a writer on a file, which have separate connections.
//! * The cost of a call does not depend on how many tasks wait: every statement except those of
//!   [`ReadTx::audit`](crate::store::ReadTx::audit) reads through an index and sorts nothing. (If a host keeps
//!   statistics by `ANALYZE`, SQLite 3.46, which comes with rusqlite 0.32, sorts the ready tasks of a lane.
//!   3.49 and later do not.)
//!
//! # Versions of SQLite and of its driver
//!
//! Any `rusqlite` from 0.32 to 0.41 works. Cargo picks the one that the rest of the graph allows, since only
//! one crate may link SQLite. Beside sqlx 0.8 that is 0.32, beside sqlx 0.9 0.39, beside diesel 2.3 0.40.
//! Without the feature `bundled`, SQLite comes from another crate or from the system, and must be 3.38 or
//! newer. Newer drivers require newer versions (0.41 does not link with 3.40).
//!
//! # Examples
//!
//! ```
//! use stationmaster::admission::IfExists;
//! use stationmaster::pool::{PoolSpec, Slots};
//! use stationmaster::store::sqlite::{SqliteOptions, SqliteStore};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("jobs.db");
//! let store = SqliteStore::open(&path, SqliteOptions::new())?;
//! store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Replace))?;
//! drop(store);
//!
//! let again = SqliteStore::open(&path, SqliteOptions::new())?;
//! assert_eq!(again.read(|tx| tx.all_pools())?.len(), 2, "default_pool and db");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod conn;
mod error;
mod host;
mod log;
mod options;
mod prefix;
mod probe;
mod schema;
#[cfg(test)]
mod tests;
mod tx;
mod upgrade;

use std::path::Path;

pub use error::{commit_error, store_error};
pub use host::SqliteTx;
pub use options::SqliteOptions;
pub use prefix::Prefix;
/// The driver, in the version that the crate was built with, for hosts that pass in their own transactions.
pub use rusqlite;
pub use schema::{migrations_sql, migrations_sql_from};
pub(super) use tx::SqliteBackend;
pub use upgrade::{finish_upgrade, migrate};

use crate::error::{Error, Result, StoreError, StoreErrorKind};
use crate::store::{Durability, Store, StoreInfo, Tx, TxMode};
use conn::{Place, Role, Session};

/// Keeps everything in a SQLite database. See the [module](self).
#[derive(Debug)]
pub struct SqliteStore {
    /// `None` in memory, because the writer also reads there. Declared before the writer, so that it is closed
    /// first, and the last connection to close can empty the log.
    reader: Option<Session>,
    writer: Session,
    options: SqliteOptions,
}

impl SqliteStore {
    /// Opens a database file. Creates it, or adds the store's tables to it, if necessary.
    ///
    /// # Errors
    ///
    /// Returns an error of one of these kinds:
    ///
    /// * `Schema` for a foreign schema, or for a newer one that this version cannot work beside. The file is
    ///   left untouched.
    /// * `Corrupt` for a file that is not a SQLite database. It is left untouched.
    /// * `Io` if the directory does not exist.
    /// * `ReadOnly` if tables must be written but cannot be.
    /// * `Busy` if another process held the file for longer than the busy timeout.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::sqlite::{SqliteOptions, SqliteStore};
    /// # let dir = tempfile::tempdir()?;
    /// let store = SqliteStore::open(dir.path().join("jobs.db"), SqliteOptions::new())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self> {
        let path = path.as_ref();
        if path.as_os_str() == ":memory:" {
            let text = "\":memory:\" is no file: use SqliteStore::in_memory";
            return Err(StoreError::new(StoreErrorKind::Backend, text).into());
        }
        let path = std::path::absolute(path).map_err(|error| {
            let text = format!("{:?} is no path: {error}", path.display().to_string());
            StoreError::new(StoreErrorKind::Io, text).with_source(error)
        })?;
        let place = Place::File(path);
        let reader = Session::lazy(place.clone(), Role::Reader, options.clone());
        let writer = Session::create(place, options.clone())?;
        Ok(Self { reader: Some(reader), writer, options })
    }

    /// Creates a database in memory. It is deleted when the store is dropped.
    ///
    /// # Errors
    ///
    /// Only if memory is short.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::{Store, sqlite::{SqliteOptions, SqliteStore}};
    /// let store = SqliteStore::in_memory(SqliteOptions::new())?;
    /// assert_eq!(store.info().backend, "sqlite");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn in_memory(options: SqliteOptions) -> Result<Self> {
        let writer = Session::create(Place::Memory, options.clone())?;
        Ok(Self { reader: None, writer, options })
    }
}

crate::store::transactions!(=> SqliteStore);

impl Store for SqliteStore {
    fn info(&self) -> StoreInfo {
        let durability = match self.reader {
            Some(_) => self.options.durability.max(Durability::Process),
            None => Durability::None,
        };
        StoreInfo::new("sqlite", schema::VERSION, durability).lock_timeout(self.options.timeout())
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let reader = self.reader.as_ref().filter(|_| mode == TxMode::Read);
        reader.unwrap_or(&self.writer).transact(mode, |conn| {
            let mut tx = SqliteBackend::inside(conn, &self.options.prefix, mode);
            Tx::run(&mut tx, |tx| body(tx))?;
            tx.check_whole().map_err(Error::Store)
        })
    }
}
