//! The part of a task's row that changes over its life. The rest, which is larger, is written only once.

use crate::lease::Lease;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// A task's progress, and its results so far.
#[derive(Debug, Clone)]
pub(super) struct Course {
    state: TaskState,
    due: Option<Timestamp>,
    ready_at: Timestamp,
    attempt: u32,
    forgiven: u32,
    lost: u32,
    epoch: i64,
    lease: Option<Lease>,
    held_slots: u32,
    queued_at: Option<Timestamp>,
    first_started_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    message: Option<String>,
    value: Option<String>,
    finished: Option<TaskState>,
}

impl Course {
    pub(super) fn of(task: &TaskRecord) -> Self {
        Self {
            state: task.state,
            due: task.due,
            ready_at: task.ready_at,
            attempt: task.attempt,
            forgiven: task.forgiven,
            lost: task.lost,
            epoch: task.epoch,
            lease: task.lease.clone(),
            held_slots: task.held_slots,
            queued_at: task.queued_at,
            first_started_at: task.first_started_at,
            started_at: task.started_at,
            ended_at: task.ended_at,
            message: task.message.clone(),
            value: task.value.clone(),
            finished: task.finished,
        }
    }

    pub(super) fn put_into(self, task: &mut TaskRecord) {
        task.state = self.state;
        task.due = self.due;
        task.ready_at = self.ready_at;
        task.attempt = self.attempt;
        task.forgiven = self.forgiven;
        task.lost = self.lost;
        task.epoch = self.epoch;
        task.lease = self.lease;
        task.held_slots = self.held_slots;
        task.queued_at = self.queued_at;
        task.first_started_at = self.first_started_at;
        task.started_at = self.started_at;
        task.ended_at = self.ended_at;
        task.message = self.message;
        task.value = self.value;
        task.finished = self.finished;
    }
}
