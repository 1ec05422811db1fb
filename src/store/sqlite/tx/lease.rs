//! What becomes of a task once it was granted.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use rusqlite::{OptionalExtension, params};

use super::super::error::{Fault, Outcome};
use super::codes::{Code, mask, task_state};
use super::lane::LaneChanges;
use super::{Db, clamp, row};
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::LeaseRef;
use crate::store::Moved;
use crate::store::contract::Move;
use crate::task::{TaskRecord, TaskState};
use crate::time::{from_micros, micros};

pub(super) const START: &str = concat!(
    "UPDATE sm_task SET state = 2, started_at = ",
    row::recorded_at!("?3"),
    ", first_started_at = coalesce(first_started_at, ",
    row::recorded_at!("?3"),
    ") WHERE no = ?1 AND epoch = ?2 AND state = 1"
);
pub(super) const RENEW: &str =
    "UPDATE sm_task SET expires_at = ?3 WHERE no = ?1 AND epoch = ?2 AND expires_at IS NOT NULL";
pub(super) const MOVE: &str = "UPDATE sm_task SET state = ?3, due = ?4, held_slots = ?5, \
     ready_at = coalesce(max(?4, ?7), ?4, ?7, ready_at), \
     forgiven = min(forgiven + ?6, 4294967295), lost = coalesce(?11, lost), ended_at = coalesce(?7, ended_at), message = ?8, value = ?9, \
     finished = ?12, holder = NULL, expires_at = NULL WHERE no = ?1 AND epoch = ?2 AND (?10 >> state) & 1";
pub(super) const READY_LANE: &str = "SELECT lane FROM sm_task WHERE no = ?1 AND state = 0";
pub(super) const EXPIRED: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    " FROM sm_task WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at, no LIMIT ?2"
);
pub(super) const NEXT_EXPIRY: &str =
    "SELECT expires_at FROM sm_task WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";

/// What an update of one row changed.
pub(super) fn moved(rows: usize) -> Moved {
    if rows == 0 { Moved::No } else { Moved::Yes }
}

impl Db<'_> {
    pub(super) fn start_if_queued(&mut self, leases: &[LeaseRef], now: DateTime<Utc>) -> Outcome<Vec<Moved>> {
        self.touch(START, leases, now)
    }

    pub(super) fn renew_if_leased(
        &mut self,
        leases: &[LeaseRef],
        expires_at: DateTime<Utc>,
    ) -> Outcome<Vec<Moved>> {
        self.touch(RENEW, leases, expires_at)
    }

    fn touch(&self, sql: &'static str, leases: &[LeaseRef], at: DateTime<Utc>) -> Outcome<Vec<Moved>> {
        let mut statement = self.prepare(sql)?;
        let at = micros(at);
        leases.iter().map(|lease| Ok(moved(statement.execute((lease.no.0, lease.epoch, at))?))).collect()
    }

    pub(super) fn move_if(&mut self, moves: &[Move]) -> Outcome<Vec<Moved>> {
        if let Some(wrong) = moves.iter().find(|change| change.to.is_leased()) {
            let text = format!(
                "task number {} cannot be moved to {}: grant it, then start it",
                wrong.task.no.0, wrong.to
            );
            return Err(Fault::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        let mut statement = self.prepare(MOVE)?;
        let mut changes = LaneChanges::default();
        let mut answers = Vec::with_capacity(moves.len());
        let mut done = HashSet::with_capacity(moves.len());
        for change in moves {
            let no = change.task.no.0;
            if done.contains(&no) {
                answers.push(Moved::No);
                continue;
            }
            let was_ready =
                if change.from.contains(TaskState::Scheduled) { self.ready_lane(no)? } else { None };
            let rows = statement.execute(params![
                no,
                change.task.epoch,
                task_state(change.to, change.due),
                change.due.map(micros),
                change.held_slots,
                change.forgive,
                change.ended_at.map(micros),
                change.message,
                change.value,
                mask(change.from),
                change.lost,
                change.finished.then(|| change.to.code()),
            ])?;
            answers.push(moved(rows));
            if rows == 0 {
                continue;
            }
            done.insert(no);
            if let Some(lane) = was_ready {
                changes.ready(lane, -1);
            }
            if change.to == TaskState::Scheduled
                && change.due.is_none()
                && let Some(lane) = self.ready_lane(no)?
            {
                changes.ready(lane, 1);
            }
        }
        changes.write(self)?;
        Ok(answers)
    }

    /// The lane of a task that is ready.
    fn ready_lane(&self, no: i64) -> Outcome<Option<i64>> {
        Ok(self.prepare(READY_LANE)?.query_row([no], |row| row.get(0)).optional()?)
    }

    pub(super) fn expired(&mut self, now: DateTime<Utc>, limit: usize) -> Outcome<Vec<TaskRecord>> {
        let mut statement = self.prepare(EXPIRED)?;
        let mut rows = statement.query((micros(now), clamp(limit)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(row::task(self, row)?);
        }
        Ok(found)
    }

    pub(super) fn next_expiry(&mut self) -> Outcome<Option<DateTime<Utc>>> {
        Ok(self.prepare(NEXT_EXPIRY)?.query_row([], |row| row.get(0).map(from_micros)).optional()?)
    }
}
