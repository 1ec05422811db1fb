//! Changes and deletes waiting tasks.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, params};

use super::super::error::Outcome;
use super::Db;
use super::attempt::{ENDED, READY, STANDING, Standing};
use super::codes::{lease_loss, task_state};
use super::counters::LaneChanges;
use super::history::DELETE_ATTEMPTS;
use super::retention::{DELETE_SENSOR, DELETE_TASK};
use crate::backoff::RetryPolicy;
use crate::lease::LeaseRef;
use crate::store::contract::Change;
use crate::store::sql::records;
use crate::task::TaskState;
use crate::time::Timestamp;

pub(super) const CHANGE: &str = "UPDATE sm_task SET state = ?2, due = ?3, ready_at = ?4, lane = ?5, slots = ?6, rank = ?7, \
     logical_date = ?8, priority = ?9, lease_loss = ?10, attempt_runs = ?11, retry = ?12, payload = ?13 WHERE no = ?1";

impl Db<'_> {
    pub(super) fn change_if(&mut self, changes: &[Change]) -> Outcome<Vec<bool>> {
        let mut statement = self.prepare(CHANGE)?;
        let (mut lanes, mut changed) = (LaneChanges::default(), HashSet::with_capacity(changes.len()));
        let mut answers = Vec::with_capacity(changes.len());
        for change in changes {
            let (id, to) = (change.task.id.0, &change.to);
            let waits = matches!(change.from, TaskState::Scheduled | TaskState::UpForRetry);
            let was = self.free(change.task, change.from)?.filter(|_| waits);
            // Of several changes of a task, only the first counts.
            let Some(was) = was.filter(|_| changed.insert(id)) else {
                answers.push(false);
                continue;
            };
            let lane = match self.lane_no(&to.lane)? {
                Some(lane) => lane,
                None => self.new_lane(&to.lane)?,
            };
            let retry =
                (to.retry != RetryPolicy::none()).then(|| serde_json::to_string(&to.retry)).transpose()?;
            statement.execute(params![
                id,
                task_state(change.becomes(), to.due, false),
                to.due.map(Timestamp::as_micros),
                change.ready_at.as_micros(),
                lane,
                to.lane.slots,
                to.rank,
                to.logical_date.as_micros(),
                to.priority,
                lease_loss(to.lease_loss),
                records::notes(to),
                retry,
                to.payload,
            ])?;
            answers.push(true);
            lanes.ready(was.lane, -i64::from(was.state == READY));
            lanes.tasks(was.lane, -1, 0);
            lanes.ready(lane, i64::from(to.due.is_none()));
            lanes.tasks(lane, 1, 0);
        }
        lanes.write(self)?;
        Ok(answers)
    }

    pub(super) fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> Outcome<Vec<bool>> {
        let (mut lanes, mut gone) = (LaneChanges::default(), Vec::with_capacity(tasks.len()));
        let mut answers = Vec::with_capacity(tasks.len());
        for (task, from) in tasks {
            let id = task.id.0;
            let Some(was) = self.free(*task, *from)? else {
                answers.push(false);
                continue;
            };
            self.prepare(DELETE_TASK)?.execute([id])?;
            gone.push(id);
            answers.push(true);
            let has_ended = was.state >= ENDED;
            lanes.ready(was.lane, -i64::from(was.state == READY));
            lanes.tasks(was.lane, -i64::from(!has_ended), -i64::from(has_ended));
        }
        self.delete_rows_of(&gone)?;
        lanes.write(self)?;
        Ok(answers)
    }

    /// Deletes the other rows of deleted tasks.
    pub(super) fn delete_rows_of(&mut self, tasks: &[i64]) -> Outcome<()> {
        let mut sensor = self.prepare(DELETE_SENSOR)?;
        let mut last_change = None;
        for id in tasks {
            let changed: Option<i64> = sensor.query_row([id], |row| row.get(0)).optional()?;
            last_change = last_change.max(changed);
        }
        let mut attempts = self.prepare(DELETE_ATTEMPTS)?;
        for id in tasks {
            attempts.execute([id])?;
        }
        drop((sensor, attempts));
        match last_change {
            Some(last) if last > self.counter("forgotten")? => self.set_counter("forgotten", last),
            _ => Ok(()),
        }
    }

    /// Returns the standing of a task that is in this state under this epoch and holds nothing.
    fn free(&self, task: LeaseRef, from: TaskState) -> Outcome<Option<Standing>> {
        let was = self.prepare(STANDING)?.query_row([task.id.0], Standing::read).optional()?;
        Ok(was.filter(|was| !from.is_leased() && was.held_slots == 0 && was.fits(task, from)))
    }
}
