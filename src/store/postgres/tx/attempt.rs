//! What happens to a task after it is granted.

use std::collections::{BTreeSet, HashMap, HashSet};

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::looks::Look;
use super::super::text::escape;
use super::super::wire::{Param, Statement, ask};
use super::retention::OLD_NAMES;
use super::{Db, clamp, first, insert, row};
use crate::error::{StoreError, StoreErrorKind};
use crate::id::Holder;
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::store::contract::{Held, Move, Started, Wait};
use crate::store::sql::codes::{Code, mask, task_state};
use crate::store::sql::statement::statement;
use crate::task::TaskRecord;
use crate::time::Timestamp;

pub(super) const START: &str = statement!("start.sql");
pub(super) const BEAT: &str = statement!("beat.sql");
pub(super) const RENEW: &str = statement!("renew.sql");
pub(super) const NOTE: &str = statement!("note.sql");
pub(super) const CANCEL: &str = statement!("cancel.sql");
pub(super) const MOVE: &str = statement!("move.sql");
pub(super) const END: &str = statement!("end.sql");
/// [`END`] of one lease.
pub(in crate::store::postgres) const END_ONE: &str = "SELECT place, is_recorded, is_fed FROM sm._end_one(\
  $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::text, $7::bigint, false) \
  WHERE place IS NOT NULL";
pub(super) const LOCK_EXPIRED: &str = statement!("lock_expired.sql");
pub(super) const STILL_EXPIRED: &str = statement!("still_expired.sql");
pub(super) const LOCK_TASKS: &str = statement!("lock_tasks.sql", passing = "");
pub(super) const LOCK_FREE_TASKS: &str = statement!("lock_tasks.sql", passing = " SKIP LOCKED");
pub(super) const SERIALIZE: &str = statement!("serialize.sql");
pub(super) const LEASES_OF: &str = statement!("leases_of.sql");
pub(super) const NEXT_EXPIRY: &str = statement!("next_expiry.sql");
const SIZES: &str = statement!("sizes.sql");

const BEFORE_LOCKS: &str = "SAVEPOINT stationmaster_locks";
const GIVE_UP_LOCKS: &str = "ROLLBACK TO SAVEPOINT stationmaster_locks";

/// The most names, unused for a day, that one call of `serialize` deletes.
const NAMES_FORGOTTEN: i64 = 10;

/// How often a call tries to lock tasks that moved while it waited for them. Each try waits for the
/// transaction that has locked them, so a call needs this many only if others keep moving them.
pub(super) const LOOKS: usize = 16;

/// Returns the text in its stored form.
fn stored(text: &Option<String>) -> Option<String> {
    text.as_deref().map(|text| escape(text).into_owned())
}

/// Ends of attempts that need no look at their tasks.
#[derive(Debug, Default)]
pub(super) struct Ends {
    ids: Vec<i64>,
    epochs: Vec<i64>,
    states: Vec<i64>,
    at: Vec<Option<i64>>,
    messages: Vec<Option<String>>,
    values: Vec<Option<String>>,
}

impl Ends {
    fn new(ends: &[Move]) -> Self {
        let (ids, epochs) = ends.iter().map(|end| numbers(&end.task)).unzip();
        Self {
            ids,
            epochs,
            states: ends.iter().map(|end| end.to.code()).collect(),
            at: ends.iter().map(|end| end.ended_at.map(Timestamp::as_micros)).collect(),
            messages: texts(ends, |end| &end.message),
            values: texts(ends, |end| &end.value),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the statement. It must end `all` attempts, or fails, unless that is 0.
    fn statement(self, all: usize) -> Statement {
        let Self { ids, epochs, states, at, messages, values } = self;
        let all = clamp(all);
        match (&*ids, &*epochs, &*states, &*at) {
            ([id], [epoch], [state], [at]) => {
                let text = |texts: Vec<Option<String>>| texts.into_iter().next().flatten();
                ask!(END_ONE, *id, *epoch, *state, *at, text(messages), text(values), all)
            }
            _ => ask!(END, ids, epochs, states, at, messages, values, all),
        }
    }

    /// Returns the statement, which must end all of them.
    pub(super) fn whole(self) -> Statement {
        let all = self.len();
        self.statement(all)
    }

    /// Adds them to the parameters of a statement that ends them itself.
    pub(super) fn add_to(self, params: &mut Vec<Param>) {
        let Self { ids, epochs, states, at, messages, values } = self;
        params.extend([ids, epochs, states].map(Param::from));
        params.extend([Param::from(at), messages.into(), values.into()]);
    }
}

fn texts(moves: &[Move], part: fn(&Move) -> &Option<String>) -> Vec<Option<String>> {
    moves.iter().map(|change| stored(part(change))).collect()
}

fn numbers(lease: &LeaseRef) -> (i64, i64) {
    (lease.id.0, lease.epoch)
}

impl Db<'_> {
    pub(super) fn start_if_queued(
        &mut self,
        leases: &[LeaseRef],
        now: Timestamp,
    ) -> Outcome<Vec<Option<Started>>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, epochs): (Vec<i64>, Vec<i64>) = leases.iter().map(numbers).unzip();
        let mut started = HashMap::with_capacity(leases.len());
        for row in self.one(ask!(START, ids, epochs, now.as_micros()))? {
            let lease: (i64, i64) = (row::value(&row, 0)?, row::value(&row, 1)?);
            started.insert(lease, Started::new(row::code(&row, 2)?));
        }
        Ok(leases.iter().map(|lease| started.remove(&numbers(lease))).collect())
    }

    pub(super) fn renew_if_leased(
        &mut self,
        leases: &[LeaseRef],
        expires_at: Timestamp,
    ) -> Outcome<Vec<Renewal>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let distinct: BTreeSet<(i64, i64)> = leases.iter().map(numbers).collect();
        let (ids, epochs): (Vec<i64>, Vec<i64>) = distinct.into_iter().unzip();
        let statements =
            [ask!(BEAT, ids.clone(), epochs.clone(), expires_at.as_micros()), ask!(RENEW, ids, epochs)];
        let [_, rows] = if self.is_last() { self.all_last(statements)? } else { self.all(statements)? };
        let mut renewals = HashMap::with_capacity(rows.len());
        for row in &rows {
            let deadline: Option<i64> = row::value(row, 3)?;
            let renewal = match (row::value(row, 2)?, deadline) {
                (false, _) => Renewal::Busy,
                (true, None) => Renewal::Renewed,
                (true, Some(deadline)) => Renewal::Cancelled(Timestamp::from_micros(deadline)),
            };
            renewals.insert((row::value(row, 0)?, row::value(row, 1)?), renewal);
        }
        let renewal = |lease| renewals.get(&numbers(lease)).copied().unwrap_or(Renewal::Lost);
        Ok(leases.iter().map(renewal).collect())
    }

    pub(super) fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> Outcome<Vec<bool>> {
        if notes.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, epochs): (Vec<i64>, Vec<i64>) = notes.iter().map(|(lease, ..)| numbers(lease)).unzip();
        let at: Vec<i64> = notes.iter().map(|(_, at, _)| at.as_micros()).collect();
        let texts: Vec<String> = notes.iter().map(|(.., text)| escape(text).into_owned()).collect();
        let mut noted = HashSet::with_capacity(notes.len());
        for row in self.one(ask!(NOTE, ids, epochs, at, texts))? {
            let lease: (i64, i64) = (row::value(&row, 0)?, row::value(&row, 1)?);
            noted.insert(lease);
        }
        Ok(notes.iter().map(|(lease, ..)| noted.contains(&numbers(lease))).collect())
    }

    pub(super) fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> Outcome<Vec<Option<Timestamp>>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, epochs): (Vec<i64>, Vec<i64>) = leases.iter().map(numbers).unzip();
        let mut deadlines = HashMap::with_capacity(leases.len());
        let message = escape(message).into_owned();
        for row in self.one(ask!(CANCEL, ids, epochs, deadline.as_micros(), message))? {
            let lease: (i64, i64) = (row::value(&row, 0)?, row::value(&row, 1)?);
            deadlines.insert(lease, Timestamp::from_micros(row::value(&row, 2)?));
        }
        Ok(leases.iter().map(|lease| deadlines.get(&numbers(lease)).copied()).collect())
    }

    pub(super) fn move_if(&mut self, moves: &[Move]) -> Outcome<Vec<bool>> {
        if let Some(wrong) = moves.iter().find(|change| change.to.is_leased()) {
            let text = format!(
                "task number {} cannot be moved to {}: grant it, then start it",
                wrong.task.id.0, wrong.to
            );
            return Err(Fault::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        let mut answers = vec![false; moves.len()];
        if moves.is_empty() {
            return Ok(answers);
        }
        let each = |part: fn(&Move) -> i64| moves.iter().map(part).collect::<Vec<i64>>();
        let instants = |part: fn(&Move) -> Option<Timestamp>| {
            moves.iter().map(|change| part(change).map(Timestamp::as_micros)).collect::<Vec<Option<i64>>>()
        };
        let statement = ask!(
            MOVE,
            each(|change| change.task.id.0),
            each(|change| change.task.epoch),
            each(|change| mask(change.from)),
            each(|change| task_state(change.to, change.due, false)),
            instants(|change| change.due),
            each(|change| change.keeps_slots.into()),
            each(|change| change.forgive.into()),
            moves.iter().map(|change| change.lost.map(i64::from)).collect::<Vec<Option<i64>>>(),
            instants(|change| change.ended_at),
            moves.iter().map(|change| change.finished.then(|| change.to.code())).collect::<Vec<_>>(),
            texts(moves, |change| &change.message),
            texts(moves, |change| &change.value),
            instants(|change| change.at),
            moves.iter().map(|change| change.reason.map(Code::code)).collect::<Vec<Option<i64>>>(),
        );
        let mut is_fed = false;
        for row in self.one(statement)? {
            is_fed = row::value(&row, 1)?;
            if let Some(answer) = answers.get_mut(row::place(&row, 0)?) {
                *answer = true;
            }
        }
        self.announcements.fed(is_fed);
        Ok(answers)
    }

    pub(super) fn end_if_leased(&mut self, ends: &[Move]) -> Outcome<Vec<Option<bool>>> {
        let mut answers = vec![None; ends.len()];
        if ends.is_empty() {
            return Ok(answers);
        }
        let ends = Ends::new(ends);
        if self.may_defer() {
            answers.fill(Some(false));
            self.defer(ends);
            return Ok(answers);
        }
        let is_last = self.is_last();
        // The number of attempts that the statement must end.
        let all = if is_last { answers.len() } else { 0 };
        let mut is_fed = false;
        for row in &self.one_or_last(is_last, ends.statement(all))? {
            is_fed |= row::value::<bool>(row, 2)?;
            if let Some(answer) = answers.get_mut(row::place(row, 0)?) {
                *answer = Some(row::value(row, 1)?);
            }
        }
        self.announcements.fed(is_fed);
        self.repeats |= answers.iter().all(Option::is_none);
        Ok(answers)
    }

    /// Locks the leases that have expired, and returns their tasks. Skips leases that other transactions have
    /// locked.
    pub(super) fn hold_expired(&mut self, now: Timestamp, limit: usize) -> Outcome<Vec<TaskRecord>> {
        loop {
            let rows = self.one(ask!(LOCK_EXPIRED, now.as_micros(), clamp(limit), self.looked_after))?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let lease = |row: &Row| Ok((row::value(row, 0)?, row::value(row, 1)?));
            let leases: Vec<(i64, i64)> = rows.iter().map(lease).collect::<Outcome<_>>()?;
            let (ids, epochs): (Vec<i64>, Vec<i64>) = leases.into_iter().unzip();
            let held = rows.len();
            let still = self.one(ask!(STILL_EXPIRED, ids, epochs))?;
            // Some leases were renewed meanwhile. Other expired ones may come after those that were read.
            if still.len() == held {
                return self.of_leases(&still);
            }
        }
    }

    /// Returns the tasks that a holder leases. The statement orders them.
    pub(super) fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> Outcome<Vec<TaskRecord>> {
        let after = after.map_or(i64::MIN, |id| id.0);
        let rows = self.one(ask!(LEASES_OF, holder.as_str(), after, clamp(limit)))?;
        rows.iter().map(|row| row::noted_task(self, row, row::AFTER_TASK)).collect()
    }

    /// Returns the tasks with these numbers, by the expiry of their leases.
    fn of_leases(&mut self, rows: &[Row]) -> Outcome<Vec<TaskRecord>> {
        let ids = rows.iter().map(|row| row::value(row, 0).map(TaskId)).collect::<Outcome<Vec<_>>>()?;
        let mut found: Vec<TaskRecord> = self.tasks_by_id(&ids)?.into_iter().flatten().collect();
        found.sort_by_key(|task| (task.lease.as_ref().map(|lease| lease.expires_at), task.id));
        Ok(found)
    }

    /// Locks tasks until the transaction ends. If a task moves while the call waits for it, the call releases
    /// all locks and tries again. It must not wait for a lower number while it holds a higher one, because
    /// that may deadlock with another call.
    pub(super) fn hold_tasks(&mut self, ids: &[TaskId], wait: Wait) -> Outcome<Vec<Held>> {
        let asked: BTreeSet<i64> = ids.iter().map(|id| id.0).collect();
        let asked: Vec<i64> = asked.into_iter().collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        for look in 0..LOOKS {
            let lock = match wait {
                Wait::ForOthers => LOCK_TASKS,
                Wait::Never => LOCK_FREE_TASKS,
            };
            let (lock, tasks) = (ask!(lock, asked.clone()), ask!(insert::BY_NO, asked.clone()));
            // The savepoint is not released. The locked rows are changed next, and a row that was locked in a
            // finished subtransaction would get a multixact.
            let [locked, tasks] = if wait == Wait::Never || asked.len() == 1 {
                self.all([lock, tasks])?
            } else {
                let before = if look == 0 { BEFORE_LOCKS } else { GIVE_UP_LOCKS };
                let [_, locked, tasks] = self.all([ask!(before), lock, tasks])?;
                [locked, tasks]
            };
            let locked: HashSet<i64> = locked.iter().map(|row| row::value(row, 0)).collect::<Outcome<_>>()?;
            let mut held: HashMap<TaskId, Held> = HashMap::with_capacity(tasks.len());
            let mut has_moved = false;
            for row in &tasks {
                let task = row::noted_task(self, row, row::AFTER_TASK + 1)?;
                let is_locked = locked.contains(&task.id.0);
                has_moved |= !is_locked && wait == Wait::ForOthers;
                held.insert(task.id, if is_locked { Held::Task(Box::new(task)) } else { Held::Busy });
            }
            if !has_moved {
                return Ok(ids.iter().map(|id| held.get(id).cloned().unwrap_or(Held::Unknown)).collect());
            }
        }
        let text = "tasks were moved by others, again and again: call again";
        Err(Fault::Server(StoreError::conflict(text)))
    }

    pub(super) fn serialize(&mut self, names: &[&str]) -> Outcome<()> {
        if names.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        match self.is_own {
            // A host's transaction may stay open for long, and would keep the old names locked.
            false => self.one(ask!(SERIALIZE, names)).map(drop),
            true => {
                let [_, old_names] = self.all([ask!(SERIALIZE, names), ask!(OLD_NAMES)])?;
                self.forget_names_last(&old_names, NAMES_FORGOTTEN)
            }
        }
    }

    pub(super) fn sizes(&mut self) -> Outcome<Vec<(String, u64)>> {
        let size = |row: &Row| Ok((row::value(row, 0)?, row::value::<i64>(row, 1)?.max(0).unsigned_abs()));
        self.one(ask!(SIZES))?.iter().map(size).collect()
    }

    /// Returns when the next lease expires. Upkeep calls this in each tick, so it also deletes old names: a
    /// host that never calls [`Self::serialize`] in the store's own transactions would otherwise leave them
    /// behind.
    pub(super) fn next_expiry(&mut self, writes: bool) -> Outcome<Option<Timestamp>> {
        Ok(self.look(None, writes)?.expires)
    }

    /// Returns the instant before which no lease expires, at which upkeep looks again.
    pub(super) fn next_look(&mut self, now: Timestamp) -> Outcome<Option<Timestamp>> {
        let range = self.habits.looks.range(now);
        self.looked_after = range.map_or(i64::MIN, |(after, _)| after.as_micros());
        let look = self.look(range, true)?;
        Ok(self.habits.looks.found(now, range.map(|(_, until)| until), look))
    }

    fn look(&mut self, range: Option<(Timestamp, Timestamp)>, writes: bool) -> Outcome<Look> {
        let range = range.map(|(after, until)| (after.as_micros(), until.as_micros()));
        let (after, until) = range.unwrap_or((i64::MIN, i64::MAX));
        let look = ask!(NEXT_EXPIRY, after, until);
        let rows = match self.is_own && writes {
            false => self.one(look)?,
            true => {
                let [rows, old_names] = self.all([look, ask!(OLD_NAMES)])?;
                self.forget_names_last(&old_names, NAMES_FORGOTTEN)?;
                rows
            }
        };
        let row = first(&rows)?;
        let instant =
            |at| row::value::<Option<i64>>(row, at).map(|micros| micros.map(Timestamp::from_micros));
        Ok(Look { expires: instant(0)?, stored: instant(1)?, walked: row::value(row, 2)? })
    }
}
