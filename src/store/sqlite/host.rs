//! Transactions that the host owns: its rows and the store's commit together or not at all.

use rusqlite::Connection;

use super::prefix::Prefix;
use super::tx::SqliteBackend;
use super::upgrade::pass_gate;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::{Tx, TxMode};

/// Creates a [`Tx`] over a transaction that the host owns.
#[derive(Debug, Clone, Copy)]
pub enum SqliteTx {}

impl SqliteTx {
    /// Works in a transaction that the host began and will commit or roll back. The host's rows and the
    /// store's become visible together. The tables must exist: see [`super::migrate`].
    ///
    /// * **Begin it with [`Immediate`](rusqlite::TransactionBehavior::Immediate) if it writes.** A deferred
    ///   transaction that read before its first write is refused if another writer came in between, whatever
    ///   the busy timeout. The error is [`StoreErrorKind::Busy`], which [is
    ///   retryable](StoreError::is_retryable). Roll back, and begin the whole transaction again.
    /// * **If an operation returns an error, roll back.** The store does not do it for you, and part of the
    ///   work may be done.
    /// * **A stale lease is a result, not an error**, unless you call [`fenced`](crate::ops::Fenced::fenced).
    ///   Then `?` leaves your function, and the dropped transaction rolls your rows back.
    /// * Keep one handle per transaction. After a rollback to a savepoint, attach again, because the handle
    ///   caches lanes.
    /// * If you ignore an error, call [`Tx::check_whole`] before you commit.
    ///
    /// The connection stays the host's. Its pragmas, handlers and limits are not touched. The store uses three
    /// things of the connection:
    ///
    /// * Its cache of prepared statements, whose capacity stays unchanged. rusqlite's default is 16, and
    ///   operations use about a dozen each. A host that calls often benefits from
    ///   [`set_prepared_statement_cache_capacity(128)`](Connection::set_prepared_statement_cache_capacity).
    ///   With 0 each statement is prepared again.
    /// * `last_insert_rowid` and `changes`, so read yours before you call.
    /// * Its hooks and authorizer, which see the statements.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Backend`] if no transaction is open on the connection. [`StoreErrorKind::Schema`] if
    /// there are no tables, or if a newer version of the crate has changed them so that this one cannot
    /// continue.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::admission::IfExists;
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
    /// SqliteTx::attach(&tx, &prefix)?.define([PoolSpec::new("data", Slots::Limited(4))?], IfExists::Replace)?;
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach<'c>(conn: &'c Connection, prefix: &Prefix) -> StoreResult<Tx<'c>> {
        if conn.is_autocommit() {
            let text = "no transaction is open on the connection: begin one, and attach to it";
            return Err(StoreError::new(StoreErrorKind::Backend, text));
        }
        pass_gate(conn, prefix).map_err(StoreError::from)?;
        Ok(Tx::of_sqlite(SqliteBackend::inside(conn, prefix, TxMode::Write)))
    }
}
