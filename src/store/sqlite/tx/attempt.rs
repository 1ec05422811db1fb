//! What happens to a task after it was granted.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, Row, params};

use super::super::error::{Fault, Outcome};
use super::codes::{Code, from_task_state, task_state};
use super::counters::LaneChanges;
use super::{Db, clamp, row};
use crate::error::{StoreError, StoreErrorKind};
use crate::id::Holder;
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::store::contract::{Move, Started};
use crate::store::sql::records;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

pub(super) const START: &str = concat!(
    "UPDATE sm_task SET state = 2, started_at = ",
    row::recorded_at!("?3"),
    ", first_started_at = coalesce(first_started_at, ",
    row::recorded_at!("?3"),
    ") WHERE no = ?1 AND epoch = ?2 AND state = 1"
);
/// A separate query, because a `RETURNING` would cost three times as much.
pub(super) const RECORDS_ATTEMPTS: &str = "SELECT attempt_runs & 1 FROM sm_task WHERE no = ?1";
pub(super) const RENEW: &str = "UPDATE sm_task SET expires_at = max(expires_at, ?3) \
     WHERE no = ?1 AND epoch = ?2 AND expires_at IS NOT NULL AND cancel_at IS NULL";
/// For the few leases that the first renewal excludes because their tasks were cancelled.
pub(super) const RENEW_CANCELLED: &str = "UPDATE sm_task SET expires_at = max(expires_at, min(?3, cancel_at)) \
     WHERE no = ?1 AND epoch = ?2 AND expires_at IS NOT NULL AND cancel_at IS NOT NULL";
pub(super) const NOTE: &str =
    "UPDATE sm_task SET noted_at = ?3, note = ?4 WHERE no = ?1 AND epoch = ?2 AND expires_at IS NOT NULL";
pub(super) const CANCEL: &str = "UPDATE sm_task SET cancel_at = ?3, expires_at = min(expires_at, ?3), message = ?4 \
     WHERE no = ?1 AND epoch = ?2 AND expires_at IS NOT NULL AND ifnull(cancel_at > ?3, 1)";
pub(super) const CANCEL_AT: &str = "SELECT cancel_at FROM sm_task WHERE no = ?1 AND epoch = ?2";
pub(super) const MOVE: &str = "UPDATE sm_task SET state = ?2, due = ?3, held_slots = ?4, \
     ready_at = coalesce(max(?3, ?6), ?3, ?6, ready_at), \
     forgiven = min(forgiven + ?5, 4294967295), lost = coalesce(?9, lost), ended_at = coalesce(?6, ended_at), \
     message = ?7, value = ?8, finished = ?10, holder = NULL, expires_at = NULL, cancel_at = NULL \
     WHERE no = ?1";
/// What a move of this task depends on, and its result.
pub(super) const STANDING: &str =
    "SELECT epoch, state, lane, held_slots, attempt_runs FROM sm_task WHERE no = ?1";
pub(super) const EXPIRED: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    " FROM sm_task WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at, no LIMIT ?2"
);
/// The size of the file in bytes, and how many of these are free for reuse.
const SIZES: &str = "SELECT page_count * page_size, freelist_count * page_size \
     FROM pragma_page_count, pragma_page_size, pragma_freelist_count";
pub(super) const NEXT_EXPIRY: &str =
    "SELECT expires_at FROM sm_task WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";

/// Walks all leases, because there are at most as many as slots, and an index by holder would be written with
/// each grant. Ordered by expiry, so the caller sorts the numbers.
pub(super) const LEASES_OF: &str = "SELECT no FROM sm_task INDEXED BY sm_task_lease \
     WHERE expires_at IS NOT NULL AND holder = ?1 AND no > ?2";

/// The table's state for a ready task that holds no slots.
pub(super) const READY: i64 = 0;
/// The table's lowest state for an ended task: success, failed, skipped and cancelled come last.
pub(super) const ENDED: i64 = 6;
/// The table's states for a leased task: queued, running.
const LEASED: [i64; 2] = [1, 2];

/// What a move depends on in a task, and its result.
pub(super) struct Standing {
    epoch: i64,
    pub(super) state: i64,
    pub(super) lane: i64,
    pub(super) held_slots: i64,
    /// The bits of `attempt_runs`.
    notes: i64,
}

impl Standing {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            epoch: row.get(0)?,
            state: row.get(1)?,
            lane: row.get(2)?,
            held_slots: row.get(3)?,
            notes: row.get(4)?,
        })
    }

    /// Returns true if the task is in this state under this epoch.
    pub(super) fn fits(&self, task: LeaseRef, from: TaskState) -> bool {
        // An unknown number is not a state, so nothing moves from it.
        self.epoch == task.epoch && from_task_state(self.state).is_ok_and(|is| is == from)
    }
}

impl Db<'_> {
    pub(super) fn start_if_queued(
        &mut self,
        leases: &[LeaseRef],
        now: Timestamp,
    ) -> Outcome<Vec<Option<Started>>> {
        let (mut statement, mut records) = (self.prepare(START)?, self.prepare(RECORDS_ATTEMPTS)?);
        let now = now.as_micros();
        let start = |lease: &LeaseRef| {
            if statement.execute((lease.id.0, lease.epoch, now))? == 0 {
                return Ok(None);
            }
            let records = records.query_row([lease.id.0], |row| Ok(row::code(row, 0)))??;
            Ok(Some(Started::new(records)))
        };
        leases.iter().map(start).collect()
    }

    pub(super) fn renew_if_leased(
        &mut self,
        leases: &[LeaseRef],
        expires_at: Timestamp,
    ) -> Outcome<Vec<Renewal>> {
        let mut statement = self.prepare(RENEW)?;
        let at = expires_at.as_micros();
        let renew = |lease: &LeaseRef| {
            let arguments = (lease.id.0, lease.epoch, at);
            if statement.execute(arguments)? > 0 {
                return Ok(Renewal::Renewed);
            }
            if self.prepare(RENEW_CANCELLED)?.execute(arguments)? == 0 {
                return Ok(Renewal::Lost);
            }
            Ok(self.cancel_at(lease)?.map_or(Renewal::Renewed, Renewal::Cancelled))
        };
        leases.iter().map(renew).collect()
    }

    pub(super) fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> Outcome<Vec<bool>> {
        let mut statement = self.prepare(NOTE)?;
        let note = |(lease, at, text): &(LeaseRef, Timestamp, String)| {
            Ok(statement.execute((lease.id.0, lease.epoch, at.as_micros(), text))? > 0)
        };
        notes.iter().map(note).collect()
    }

    pub(super) fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> Outcome<Vec<Option<Timestamp>>> {
        let mut statement = self.prepare(CANCEL)?;
        let cancel = |lease: &LeaseRef| {
            statement.execute((lease.id.0, lease.epoch, deadline.as_micros(), message))?;
            self.cancel_at(lease)
        };
        leases.iter().map(cancel).collect()
    }

    fn cancel_at(&self, lease: &LeaseRef) -> Outcome<Option<Timestamp>> {
        let mut statement = self.prepare(CANCEL_AT)?;
        let found = statement.query_row((lease.id.0, lease.epoch), |row| row.get::<_, Option<i64>>(0));
        Ok(found.optional()?.flatten().map(Timestamp::from_micros))
    }

    pub(super) fn move_if(&mut self, moves: &[Move]) -> Outcome<Vec<bool>> {
        if let Some(wrong) = moves.iter().find(|change| change.to.is_leased()) {
            let text = format!(
                "task number {} cannot be moved to {}: grant it, then start it",
                wrong.task.id.0, wrong.to
            );
            return Err(Fault::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        let (mut standing, mut statement) = (self.prepare(STANDING)?, self.prepare(MOVE)?);
        let (mut changes, mut moved) = (LaneChanges::default(), HashSet::with_capacity(moves.len()));
        let mut answers = Vec::with_capacity(moves.len());
        for change in moves {
            let id = change.task.id.0;
            let was = standing.query_row([id], Standing::read).optional()?;
            let was = was.filter(|was| was.fits(change.task, change.from));
            // Only the first of several moves of a task counts.
            let Some(was) = was.filter(|_| moved.insert(id)) else {
                answers.push(false);
                continue;
            };
            if records::history_of(was.notes).keep(change.from, change.to) {
                self.keep_attempt(change)?;
            }
            self.write_event(change, was.notes)?;
            let kept = if change.keeps_slots { was.held_slots } else { 0 };
            let state = task_state(change.to, change.due, kept > 0);
            statement.execute(params![
                id,
                state,
                change.due.map(Timestamp::as_micros),
                kept,
                change.forgive,
                change.ended_at.map(Timestamp::as_micros),
                change.message,
                change.value,
                change.lost,
                change.finished.then(|| change.to.code()),
            ])?;
            answers.push(true);
            changes.ready(was.lane, i64::from(state == READY) - i64::from(was.state == READY));
            let ends = i64::from(change.to.is_end()) - i64::from(was.state >= ENDED);
            changes.tasks(was.lane, -ends, ends);
            changes.capacity(
                was.lane,
                kept.saturating_sub(was.held_slots),
                -i64::from(LEASED.contains(&was.state)),
            );
        }
        changes.write(self)?;
        Ok(answers)
    }

    pub(super) fn hold_expired(&mut self, now: Timestamp, limit: usize) -> Outcome<Vec<TaskRecord>> {
        let mut statement = self.prepare(EXPIRED)?;
        let mut rows = statement.query((now.as_micros(), clamp(limit)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(row::task(self, row)?);
        }
        Ok(found)
    }

    pub(super) fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> Outcome<Vec<TaskRecord>> {
        let after = after.map_or(i64::MIN, |id| id.0);
        let mut ids = self
            .prepare(LEASES_OF)?
            .query_map((holder.as_str(), after), |row| row.get(0).map(TaskId))?
            .collect::<Result<Vec<TaskId>, _>>()?;
        ids.sort_unstable();
        ids.truncate(limit);
        Ok(self.tasks_by_id(&ids)?.into_iter().flatten().collect())
    }

    pub(super) fn sizes(&mut self) -> Outcome<Vec<(String, u64)>> {
        let (all, free): (i64, i64) =
            self.prepare(SIZES)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let part = |name: &str, bytes: i64| (name.to_owned(), bytes.max(0).unsigned_abs());
        let mut parts = vec![part("in use", all - free), part("free pages", free)];
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Ok(parts)
    }

    pub(super) fn next_expiry(&mut self) -> Outcome<Option<Timestamp>> {
        Ok(self
            .prepare(NEXT_EXPIRY)?
            .query_row([], |row| row.get(0).map(Timestamp::from_micros))
            .optional()?)
    }
}
