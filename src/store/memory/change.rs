//! Changing and deleting waiting tasks.

use super::state::Write;
use super::tasks::TaskRow;
use super::undo::Transaction;
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::Change;
use crate::task::{TaskRecord, TaskState};

impl Transaction<'_> {
    pub(super) fn change_task_if_waiting(&mut self, change: &Change) -> bool {
        let waits = matches!(change.from, TaskState::Scheduled | TaskState::UpForRetry);
        let Some(row) = self.free_row(change.task, change.from).filter(|_| waits).cloned() else {
            return false;
        };
        let left = row.lane;
        let (lane, needs) = self.lane_with(&change.to.lane);
        for key in &change.to.lane.limits {
            self.make_limit_known(key);
        }
        let to = change.to.clone();
        let record = TaskRecord {
            lane: needs,
            rank: to.rank,
            priority: to.priority,
            logical_date: to.logical_date,
            retry: to.retry,
            lease_loss: to.lease_loss,
            attempt_runs: to.attempt_runs,
            feed: to.feed,
            keep_attempts: to.keep_attempts,
            payload: to.payload,
            state: change.becomes(),
            due: to.due,
            ready_at: change.ready_at,
            ..row.record
        };
        self.write(Write::Task(record.id, Some(Box::new(TaskRow { record, lane }))));
        self.leave_lane(left);
        true
    }

    pub(super) fn delete_task_if(&mut self, task: LeaseRef, from: TaskState) -> bool {
        let Some(row) = self.free_row(task, from) else { return false };
        let lane = row.lane;
        self.delete_task(task.id);
        self.leave_lane(lane);
        true
    }

    /// Deletes a task with its sensor.
    pub(super) fn delete_task(&mut self, id: TaskId) {
        if let Some(sensor) = self.state.sensors.get(id) {
            let last = &mut self.state.last;
            last.forgotten_change = last.forgotten_change.max(sensor.changed);
            self.write(Write::Sensor(id, None));
        }
        if self.state.attempts.contains_key(&id) {
            self.write(Write::Attempts(id, None));
        }
        self.write(Write::Task(id, None));
    }

    /// Returns the row of a task that is in this state under this epoch and holds nothing.
    fn free_row(&self, task: LeaseRef, from: TaskState) -> Option<&TaskRow> {
        let row = self.state.tasks.row(task.id)?;
        let record = &row.record;
        let is_free = record.lease.is_none() && record.held_slots == 0;
        (is_free && record.state == from && task.is_current(record.lease_ref())).then_some(row)
    }
}
