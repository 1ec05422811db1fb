//! The transaction: what all operations share.

mod attempt;
mod audit;
mod change;
mod counters;
mod feed;
mod grant;
mod history;
mod insert;
mod lane;
mod list;
mod order;
mod pool;
mod promote;
mod queue;
mod repair;
mod retention;
mod row;
mod rules;
mod run;
mod sensor;
mod share;
mod task;
mod tick;
mod turns;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection};

use super::error::{Fault, Outcome};
use super::prefix::Prefix;
use crate::admission::LaneKey;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::TxMode;
use crate::store::sql::codes;

/// The store's operations inside a transaction.
///
/// After a failure that may have left an operation half done, every further operation is refused. Roll the
/// transaction back.
#[derive(Debug)]
pub(in crate::store) struct SqliteBackend<'c> {
    db: Db<'c>,
    mode: TxMode,
    /// Whether every operation so far did all of its work or none.
    is_whole: bool,
}

/// What operations work on.
#[derive(Debug)]
pub(super) struct Db<'c> {
    conn: &'c Connection,
    prefix: Prefix,
    /// Lanes never change once they exist, and their numbers are never reused.
    lanes: HashMap<i64, Arc<LaneKey>>,
    names: row::Names,
}

impl<'c> SqliteBackend<'c> {
    pub(super) fn inside(conn: &'c Connection, prefix: &Prefix, mode: TxMode) -> Self {
        let db = Db { conn, prefix: prefix.clone(), lanes: HashMap::new(), names: row::Names::default() };
        Self { db, mode, is_whole: true }
    }

    /// Refuses to continue once an operation may have done half of its work, or SQLite has rolled back.
    pub(in crate::store) fn check_whole(&self) -> StoreResult<()> {
        if self.is_whole && !self.db.conn.is_autocommit() {
            return Ok(());
        }
        let text = "an operation failed earlier in this transaction: roll it back and begin again";
        Err(StoreError::new(StoreErrorKind::Backend, text))
    }

    fn read<T>(&mut self, work: impl FnOnce(&mut Db<'c>) -> Outcome<T>) -> StoreResult<T> {
        self.check_whole()?;
        work(&mut self.db).map_err(|fault| {
            if !matches!(fault, Fault::Refused(_)) {
                self.is_whole = false;
            }
            fault.into()
        })
    }

    fn write<T>(&mut self, work: impl FnOnce(&mut Db<'c>) -> Outcome<T>) -> StoreResult<T> {
        if self.mode == TxMode::Read {
            let text = "the transaction only reads: begin one that writes";
            return Err(StoreError::new(StoreErrorKind::ReadOnly, text));
        }
        self.read(work)
    }
}

impl<'c> Db<'c> {
    fn prepare(&self, sql: &'static str) -> Outcome<CachedStatement<'c>> {
        Ok(self.prefix.statement(sql, |sql| self.conn.prepare_cached(sql))?)
    }

    /// Reads one of the counters that only rise.
    fn counter(&self, name: &str) -> Outcome<i64> {
        let value = self.prepare(READ_COUNTER)?.query_row([name], |row| row.get(0))?;
        match value {
            0..=MOST => Ok(value),
            _ => Err(Fault::Damaged(format!("the last number of a {name} cannot be {value}"))),
        }
    }

    fn set_counter(&self, name: &str, value: i64) -> Outcome<()> {
        self.prepare(WRITE_COUNTER)?.execute((name, value))?;
        Ok(())
    }
}

/// No counter reaches this value, and adding to a smaller one cannot overflow.
const MOST: i64 = i64::MAX >> 1;

const READ_COUNTER: &str = "SELECT value FROM sm_counter WHERE name = ?1";
const WRITE_COUNTER: &str = "UPDATE sm_counter SET value = ?2 WHERE name = ?1";

/// Converts a count or position for SQLite, saturating at the largest value.
fn clamp(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod plans;
