//! Transactions that the host owns: its rows and the store's commit together or not at all.

use rusqlite::Connection;

use super::prefix::Prefix;
use super::tx::{Access, SqliteBackend};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::Tx;

/// Makes a [`Tx`] over a transaction that the host owns.
#[derive(Debug, Clone, Copy)]
pub enum SqliteTx {}

impl SqliteTx {
    /// Works in a transaction that the host began and will commit or roll back: its rows and the store's
    /// become visible together. The tables must be there: see [`super::migrate`].
    ///
    /// * **Begin it with [`Immediate`](rusqlite::TransactionBehavior::Immediate) if it writes.** A deferred
    ///   one that read before its first write is refused when another writer came between, whatever the busy
    ///   timeout: [`StoreErrorKind::Busy`], which [is retryable](StoreError::is_retryable). Roll back, and
    ///   begin the whole transaction again.
    /// * **If an operation answers an error, roll back**: the store does not do it for you, and part of the
    ///   work may be done.
    /// * **A stale lease is an answer, not an error**, unless you ask with
    ///   [`fenced`](crate::ops::Fenced::fenced): then `?` leaves your function, and the dropped transaction
    ///   rolls your rows back.
    /// * Keep one handle per transaction. After a rollback to a savepoint, attach again: the handle remembers
    ///   lanes.
    /// * If you ignore an error, ask [`Tx::check_whole`] before you commit.
    ///
    /// The connection stays the host's. No pragma, no handler and no limit of it is touched. What is used of
    /// it: its cache of prepared statements, whose capacity stays what it is (rusqlite's default is 16;
    /// operations use about a dozen each, so a host that calls often gains by
    /// [`set_prepared_statement_cache_capacity(128)`](Connection::set_prepared_statement_cache_capacity), and
    /// with 0 each is prepared anew); `last_insert_rowid` and `changes`, so read yours before you call; and
    /// its hooks and authorizer, which see the statements.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Backend`] if no transaction is open on the connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::pool::{PoolSpec, Slots};
    /// use stationmaster::store::sqlite::{Prefix, SqliteTx, migrate, rusqlite};
    ///
    /// let mut conn = rusqlite::Connection::open_in_memory()?;
    /// let prefix = Prefix::default();
    /// migrate(&conn, &prefix)?;
    /// conn.execute_batch("CREATE TABLE team (name TEXT)")?;
    ///
    /// let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    /// tx.execute("INSERT INTO team VALUES ('data')", [])?;
    /// SqliteTx::attach(&tx, &prefix)?.put_pools(&[PoolSpec::new("data", Slots::Limited(4))?])?;
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach<'c>(conn: &'c Connection, prefix: &Prefix) -> StoreResult<Tx<'c>> {
        if conn.is_autocommit() {
            let text = "no transaction is open on the connection: begin one, and attach to it";
            return Err(StoreError::new(StoreErrorKind::Backend, text));
        }
        Ok(Tx::of_sqlite(SqliteBackend::inside(conn, prefix, Access::Write)))
    }
}
