//! What happens to a task once it was granted.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, Row, params};

use super::super::error::{Fault, Outcome};
use super::codes::{Code, from_task_state, task_state};
use super::counters::LaneChanges;
use super::{Db, clamp, row};
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::{LeaseRef, Renewal};
use crate::store::contract::{Move, Started};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

pub(super) const START: &str = concat!(
    "UPDATE sm_task SET state = 2, started_at = ",
    row::recorded_at!("?3"),
    ", first_started_at = coalesce(first_started_at, ",
    row::recorded_at!("?3"),
    ") WHERE no = ?1 AND epoch = ?2 AND state = 1"
);
/// A query of its own: a `RETURNING` would cost three times as much as this.
pub(super) const RECORDS_ATTEMPTS: &str = "SELECT attempt_runs FROM sm_task WHERE no = ?1";
pub(super) const RENEW: &str = "UPDATE sm_task SET expires_at = max(expires_at, ?3) WHERE no = ?1 AND epoch = ?2 AND expires_at IS NOT NULL";
pub(super) const MOVE: &str = "UPDATE sm_task SET state = ?2, due = ?3, held_slots = ?4, \
     ready_at = coalesce(max(?3, ?6), ?3, ?6, ready_at), \
     forgiven = min(forgiven + ?5, 4294967295), lost = coalesce(?9, lost), ended_at = coalesce(?6, ended_at), \
     message = ?7, value = ?8, finished = ?10, holder = NULL, expires_at = NULL WHERE no = ?1";
/// What a move of this task depends on, and returns.
pub(super) const STANDING: &str = "SELECT epoch, state, lane, held_slots FROM sm_task WHERE no = ?1";
pub(super) const EXPIRED: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    " FROM sm_task WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at, no LIMIT ?2"
);
pub(super) const NEXT_EXPIRY: &str =
    "SELECT expires_at FROM sm_task WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";

/// The table's state for a ready task.
const READY: i64 = 0;
/// The table's least state for a task that ended: success, failed and skipped come last.
const ENDED: i64 = 6;
/// The table's states for a leased task: queued, running.
const LEASED: [i64; 2] = [1, 2];

/// What a move depends on in a task, and returns.
struct Standing {
    epoch: i64,
    state: i64,
    lane: i64,
    held_slots: i64,
}

impl Standing {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { epoch: row.get(0)?, state: row.get(1)?, lane: row.get(2)?, held_slots: row.get(3)? })
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
            let renewed = statement.execute((lease.id.0, lease.epoch, at))? > 0;
            Ok(if renewed { Renewal::Renewed } else { Renewal::Lost })
        };
        leases.iter().map(renew).collect()
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
            let fits = |was: &Standing| {
                // An unknown number is no state, so nothing is moved from it.
                was.epoch == change.task.epoch && from_task_state(was.state).is_ok_and(|is| is == change.from)
            };
            // Only the first of several moves of a task counts.
            let Some(was) = was.filter(fits).filter(|_| moved.insert(id)) else {
                answers.push(false);
                continue;
            };
            let kept = if change.keeps_slots { was.held_slots } else { 0 };
            statement.execute(params![
                id,
                task_state(change.to, change.due),
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
            let is_ready = change.to == TaskState::Scheduled && change.due.is_none();
            changes.ready(was.lane, i64::from(is_ready) - i64::from(was.state == READY));
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

    pub(super) fn next_expiry(&mut self) -> Outcome<Option<Timestamp>> {
        Ok(self
            .prepare(NEXT_EXPIRY)?
            .query_row([], |row| row.get(0).map(Timestamp::from_micros))
            .optional()?)
    }
}
