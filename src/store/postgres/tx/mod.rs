//! The transaction: what all operations share.

mod attempt;
mod audit;
mod event;
mod fold;
mod insert;
mod notify;
mod pool;
mod promote;
mod retention;
mod row;
mod run;
mod sensor;
mod task;
mod tick;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row;

use super::digest::Digest;
use self::notify::Telling;
use super::error::{Fault, Outcome};
use super::turn;
use super::wire::{Answer, Statement, Touch, Wire, ask};
use crate::admission::LaneKey;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::TxMode;

/// The store's operations inside a transaction.
///
/// A [`super::PostgresStore`] makes it for its own transactions; [`super::attach`] makes it for one of the
/// host's.
///
/// After an operation failed at the server or read what it cannot, every further one is refused: roll the
/// transaction back.
pub(in crate::store) struct PostgresBackend<'w> {
    db: Db<'w>,
    mode: TxMode,
    /// Whether every operation so far did all of its work or none.
    is_whole: bool,
}

/// What operations work on.
struct Db<'w> {
    wire: Box<dyn Wire + 'w>,
    touch: Touch,
    /// Whether the transaction has noted that it writes.
    has_ticket: bool,
    telling: Telling,
    /// The needs that a digest stands for never change.
    lanes: HashMap<Digest, LaneKey>,
    names: row::Names,
    reaches: tick::Reaches,
}

impl std::fmt::Debug for PostgresBackend<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresBackend")
            .field("mode", &self.mode)
            .field("is_whole", &self.is_whole)
            .finish_non_exhaustive()
    }
}

impl<'w> PostgresBackend<'w> {
    pub(super) fn inside(wire: Box<dyn Wire + 'w>, mode: TxMode, channel: Option<Arc<str>>) -> Self {
        let db = Db {
            wire,
            touch: Touch::Reads,
            has_ticket: false,
            telling: Telling::on(channel),
            lanes: HashMap::new(),
            names: row::Names::default(),
            reaches: tick::Reaches::default(),
        };
        Self { db, mode, is_whole: true }
    }

    /// The same, in a transaction that has noted that it writes.
    pub(super) fn ticketed(mut self) -> Self {
        self.db.has_ticket = true;
        self
    }

    /// Refuses to continue once the transaction is lost.
    pub(in crate::store) fn check_whole(&self) -> StoreResult<()> {
        if self.is_whole {
            return Ok(());
        }
        let text = "an operation failed earlier in this transaction: roll it back and begin again";
        Err(StoreError::new(StoreErrorKind::Backend, text))
    }

    fn read<T>(&mut self, work: impl FnOnce(&mut Db<'w>) -> Outcome<T>) -> StoreResult<T> {
        self.run(Touch::Reads, work)
    }

    fn write<T>(&mut self, work: impl FnOnce(&mut Db<'w>) -> Outcome<T>) -> StoreResult<T> {
        self.tick(|db| {
            db.reaches.forget();
            work(db)
        })
    }

    /// [`Self::write`] for what a tick does: it changes counters, and appends nothing that is to be folded.
    fn tick<T>(&mut self, work: impl FnOnce(&mut Db<'w>) -> Outcome<T>) -> StoreResult<T> {
        if self.mode == TxMode::Read {
            let text = "the transaction only reads: begin one that writes";
            return Err(StoreError::new(StoreErrorKind::ReadOnly, text));
        }
        self.run(Touch::Writes, work)
    }

    fn run<T>(&mut self, touch: Touch, work: impl FnOnce(&mut Db<'w>) -> Outcome<T>) -> StoreResult<T> {
        self.check_whole()?;
        self.db.touch = touch;
        work(&mut self.db).map_err(|fault| {
            if !matches!(fault, Fault::Refused(_)) {
                self.is_whole = false;
            }
            fault.into()
        })
    }
}

impl Db<'_> {
    /// Runs one statement.
    fn one(&mut self, statement: Statement) -> Outcome<Answer> {
        let [answer] = self.all([statement])?;
        Ok(answer)
    }

    /// Runs statements in one round trip. Each sees what those before it changed.
    fn all<const N: usize>(&mut self, statements: [Statement; N]) -> Outcome<[Answer; N]> {
        let mut batch = Vec::with_capacity(N + 2);
        let ticket = self.touch == Touch::Writes && !self.has_ticket;
        if ticket {
            batch.push(ask!(turn::TICKET));
            self.has_ticket = true;
        }
        batch.extend(statements);
        let news = self.telling.take();
        let tells = news.is_some();
        batch.extend(news);
        let mut answers = self.wire.send(batch, self.touch)?;
        if tells {
            answers.pop();
        }
        if ticket && !answers.is_empty() {
            answers.remove(0);
        }
        answers.try_into().map_err(|answers: Vec<Answer>| {
            Fault::Damaged(format!("{} statements of {N} were answered", answers.len()))
        })
    }

    /// [`Self::all`] for statements that note by themselves that they write, if they do.
    fn unticketed<const N: usize>(&mut self, statements: [Statement; N]) -> Outcome<[Answer; N]> {
        let before = std::mem::replace(&mut self.has_ticket, true);
        let answers = self.all(statements);
        self.has_ticket = before;
        answers
    }

    /// Runs a statement that returns one number.
    fn number(&mut self, statement: Statement) -> Outcome<usize> {
        let rows = self.one(statement)?;
        row::whole(first(&rows)?, 0)
    }
}

fn first(rows: &[Row]) -> Outcome<&Row> {
    rows.first().ok_or_else(|| Fault::Damaged("a statement that always answers did not".into()))
}

/// Converts a count or position for PostgreSQL, saturating at the largest value.
fn clamp(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod plans;
