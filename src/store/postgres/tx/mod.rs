//! The transaction: what all operations share.

mod attempt;
mod audit;
mod cap;
mod change;
mod deferred;
mod feed;
mod fold;
mod insert;
mod last;
mod list;
mod notify;
mod pool;
mod promote;
mod queue;
mod retention;
pub(super) mod row;
mod rules;
mod run;
mod sensor;
mod shapes;
mod task;
mod tick;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row;

pub(super) use self::attempt::END_ONE;
pub(super) use self::fold::{FOLD, Folded, MOST as MOST_FOLDED, is_whole};
use self::notify::Announcements;
use self::sensor::numbers;
pub(super) use self::tick::TICK_HOLDER;
pub(super) use self::tick::ahead::TICK_AHEAD;
use super::digest::Digest;
use super::error::{Failure, Fault, Outcome};
use super::habits::Habits;
use super::news::Channel;
use super::tick_lock;
use super::wire::{Answer, Statement, Touch, Wire, ask};
use crate::admission::LaneKey;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::TxMode;

/// The store's operations inside a transaction.
///
/// A [`super::PostgresStore`] creates it for its own transactions; [`super::attach`] creates it for a host's.
///
/// After an operation failed at the server or read a damaged row, every further one is refused: roll the transaction
/// back.
pub(in crate::store) struct PostgresBackend<'w> {
    db: Db<'w>,
    mode: TxMode,
    /// Whether every operation so far did all or none of its work.
    is_whole: bool,
}

/// The state that operations work on.
struct Db<'w> {
    wire: Box<dyn Wire + 'w>,
    touch: Touch,
    /// Whether this is the store's own transaction.
    is_own: bool,
    /// Whether it numbers changes of sensors at once when it appends them.
    numbers: bool,
    /// How many changes it appended without a number.
    unnumbered: usize,
    /// How many unused names it deletes before it commits.
    old_names: i64,
    /// Whether the store's own transaction has the tick lock. It then waits only briefly for anything else.
    hurries: bool,
    /// No lease expires at this instant or earlier, as far as this transaction has looked.
    looked_after: i64,
    /// Whether its caller may rely on something whose flush a tick's commit does not wait for.
    hands_out: bool,
    /// Whether another transaction had already done what its caller asked for. That one's commit may not be flushed.
    repeats: bool,
    /// Whether a host's transaction is `READ COMMITTED`, once the server was asked.
    is_read_committed: Option<bool>,
    announcements: Box<Announcements>,
    habits: Arc<Habits>,
    last: last::Last,
    /// What is sent with the next statements.
    deferred: Option<Box<deferred::Deferred>>,
    /// The needs that a digest identifies never change.
    lanes: HashMap<Digest, Arc<LaneKey>>,
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
    pub(super) fn inside(wire: Box<dyn Wire + 'w>, mode: TxMode, channel: Option<Channel>) -> Self {
        let db = Db {
            wire,
            touch: Touch::Reads,
            is_own: false,
            numbers: false,
            unnumbered: 0,
            old_names: 0,
            hurries: false,
            looked_after: i64::MIN,
            hands_out: false,
            repeats: false,
            is_read_committed: None,
            announcements: Box::new(Announcements::on(channel)),
            habits: Arc::default(),
            last: last::Last::Never,
            deferred: None,
            lanes: HashMap::new(),
            names: row::Names::default(),
            reaches: tick::Reaches::default(),
        };
        Self { db, mode, is_whole: true }
    }

    /// Creates it for the store's own transaction.
    pub(super) fn own(mut self, habits: &Arc<Habits>) -> Self {
        (self.db.is_own, self.db.habits) = (true, Arc::clone(habits));
        self
    }

    /// Does what may make other transactions wait, right before the commit: deletes names, and numbers what it
    /// appended. From then on until it ends, no other transaction assigns numbers.
    pub(super) fn conclude(&mut self) -> StoreResult<()> {
        if self.is_over() {
            return Ok(());
        }
        if self.db.deferred.is_some() && self.db.may_be_last() {
            return self.run(Touch::Writes, |db| db.all_last([]).map(drop));
        }
        let (noted, old_names) = (self.db.unnumbered, self.db.old_names);
        if old_names > 0 {
            self.run(Touch::Writes, |db| db.one(ask!(retention::FORGET_NAMES, old_names)))?;
        }
        // A tick's commit is visible before it is flushed. Followers keep the numbers that they read, and after a
        // crash other changes would get the same ones. So a transaction that ticked leaves its changes to others.
        if noted > 0 && !self.db.reaches.holds_lock {
            self.run(Touch::Writes, |db| db.number_changes(noted.saturating_add(numbers::OTHERS)))?;
        }
        // A commit of a transaction that wrote nothing does not wait for a flush. With the record it does.
        if self.db.repeats && !self.db.reaches.holds_lock {
            self.run(Touch::Writes, |db| db.one(ask!(tick_lock::FLUSH)))?;
        }
        self.make_deferred()
    }

    /// Makes ends that were deferred, if there are any left. Fails if they cannot be made as was returned.
    pub(super) fn make_deferred(&mut self) -> StoreResult<()> {
        if self.db.deferred.is_some() {
            self.run(Touch::Writes, |db| db.all([]).map(drop))?;
        }
        Ok(())
    }

    /// Numbers changes at once when it appends them.
    pub(super) fn numbering(mut self) -> Self {
        self.db.numbers = true;
        self
    }

    /// Returns whether each statement sees what was committed before it. A host may have chosen an isolation level at
    /// which all statements see the first one's snapshot.
    pub(in crate::store) fn is_read_committed(&mut self) -> StoreResult<bool> {
        self.read(Db::is_read_committed)
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
            db.hands_out = true;
            work(db)
        })
    }

    /// Returns whether a flush must follow the commit, because a tick's commit does not wait for one.
    pub(super) fn flushes_after(&self) -> bool {
        self.db.reaches.holds_lock && self.db.hands_out
    }

    /// Like [`Self::write`] for ticks, which change counters and append no deltas.
    fn tick<T>(&mut self, work: impl FnOnce(&mut Db<'w>) -> Outcome<T>) -> StoreResult<T> {
        self.check_writes()?;
        self.run(Touch::Writes, work)
    }

    fn check_writes(&self) -> StoreResult<()> {
        if self.is_over() {
            let text = "the last verb of this transaction is done, and it is committed: begin another one";
            return Err(StoreError::new(StoreErrorKind::Backend, text));
        }
        if self.mode == TxMode::Write {
            return Ok(());
        }
        let text = "the transaction only reads: begin one that writes";
        Err(StoreError::new(StoreErrorKind::ReadOnly, text))
    }

    /// Like [`Self::write`], for work that must not wait for a host.
    fn renew<T>(&mut self, work: impl FnOnce(&mut Db<'w>) -> Outcome<T>) -> StoreResult<T> {
        self.check_writes()?;
        self.db.hands_out = true;
        self.run(Touch::Renews, work)
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
        self.all_and(statements, |wire, batch, touch| wire.send(batch, touch))
    }

    /// Like [`Self::all`], but sends with `send`.
    fn all_and<const N: usize>(
        &mut self,
        statements: [Statement; N],
        send: impl FnOnce(&mut (dyn Wire + '_), Vec<Statement>, Touch) -> Result<Vec<Answer>, Failure>,
    ) -> Outcome<[Answer; N]> {
        let mut batch = Vec::with_capacity(N + 1);
        batch.extend(statements);
        let news = self.announcements.take();
        let announces = news.is_some();
        batch.extend(news);
        let mut answers = self.send(batch, send)?;
        if announces {
            answers.pop();
        }
        answers.try_into().map_err(|answers: Vec<Answer>| {
            Fault::Damaged(format!("{} statements of {N} were answered", answers.len()))
        })
    }

    /// Sends statements behind what was deferred.
    fn send(
        &mut self,
        mut batch: Vec<Statement>,
        send: impl FnOnce(&mut (dyn Wire + '_), Vec<Statement>, Touch) -> Result<Vec<Answer>, Failure>,
    ) -> Outcome<Vec<Answer>> {
        let deferred = self.with_deferred(&mut batch);
        let touch = if deferred > 0 { Touch::Writes } else { self.touch };
        let sent = send(&mut *self.wire, batch, touch).map_err(|failure| self.hurried(failure));
        if deferred == 0 {
            return sent;
        }
        let mut answers = self.sent_deferred(sent)?;
        self.take_deferred(deferred, &mut answers)?;
        Ok(answers)
    }

    /// Runs a statement that changes definitions that ticks plan with, while no tick runs. Takes the lock each time.
    /// `wakes` says whether lanes that are refused may have to be looked at again.
    fn define(&mut self, statement: Statement, wakes: bool) -> Outcome<Answer> {
        let (lock, wake) =
            (ask!(tick_lock::DEFINE), ask!(if wakes { tick::filed::WAKE_ALL } else { "SELECT" }));
        if !self.is_own {
            let [_, answer, _] = self.all([lock, statement, wake])?;
            return Ok(answer);
        }
        let [_, _, answer, _] = self.all([lock, ask!(tick_lock::SHORT_WAITS), statement, wake])?;
        self.hurries = true;
        Ok(answer)
    }

    /// Takes the lock of [`Self::define`], before definitions are read and then changed.
    fn lock_definitions(&mut self) -> Outcome<()> {
        // The definition itself follows. It is not run again if it is cancelled.
        let hurries = self.hurries;
        self.define(ask!("SELECT"), false)?;
        self.hurries = hurries;
        Ok(())
    }

    fn is_read_committed(&mut self) -> Outcome<bool> {
        if self.is_own {
            return Ok(true);
        }
        if let Some(known) = self.is_read_committed {
            return Ok(known);
        }
        let rows = self.one(ask!(tick_lock::LEVEL))?;
        let level: &str = row::value(first(&rows)?, 0)?;
        let is_read_committed = matches!(level, "read committed" | "read uncommitted");
        self.is_read_committed = Some(is_read_committed);
        Ok(is_read_committed)
    }

    /// Converts the failure of statements. A transaction that holds the tick lock and meets a locked row gives way: it
    /// is rolled back and runs again.
    fn hurried(&self, failure: Failure) -> Fault {
        match failure {
            Failure::Refused(error) if self.hurries && error.kind() == StoreErrorKind::Busy => {
                let text = "a row was locked while ticks waited for this transaction: call again";
                Fault::Server(StoreError::conflict(text).with_source(error))
            }
            failure => failure.into(),
        }
    }

    /// Runs a statement that returns one number.
    fn number(&mut self, statement: Statement) -> Outcome<usize> {
        let rows = self.one(statement)?;
        row::whole(first(&rows)?, 0)
    }
}

pub(super) fn first(rows: &[Row]) -> Outcome<&Row> {
    rows.first().ok_or_else(|| Fault::Damaged("a statement that always answers did not".into()))
}

/// Converts a count or position for PostgreSQL, saturating at the largest value.
fn clamp(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod plans;
#[cfg(test)]
mod tests;
