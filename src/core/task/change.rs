//! Changes to what a waiting task asks for.

use super::record::TaskRecord;
use super::spec::{NewTask, TaskInsert};
use super::state::TaskState;
use crate::admission::Ageing;
use crate::error::Invalid;
use crate::id::LimitKey;
use crate::lease::LeaseRef;
use crate::time::Timestamp;

/// Replaces what a task asks for, if it still waits in the state `from` and its epoch is still that of
/// `task`.
///
/// The task waits for its new due instant in the same state. Without a due instant it becomes `Scheduled` and
/// ready. Its history is kept.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// The task, and the epoch it must have.
    pub task: LeaseRef,
    /// The state it must be in: `Scheduled` or `UpForRetry`.
    pub from: TaskState,
    /// What it asks for from now on. Its key and the instant at which it was enqueued stay the same.
    pub to: TaskInsert,
    /// Since when it has waited for slots.
    pub ready_at: Timestamp,
}

impl Change {
    /// Creates a change of a task that waits in this state. It counts as having waited for slots since its
    /// due instant or, without one, since it was enqueued.
    pub fn new(task: LeaseRef, from: TaskState, to: TaskInsert) -> Self {
        let ready_at = to.due.unwrap_or(to.enqueued_at);
        Self { task, from, to, ready_at }
    }

    /// Returns the state that follows the change.
    pub fn becomes(&self) -> TaskState {
        if self.to.due.is_some() { self.from } else { TaskState::Scheduled }
    }
}

/// Returns true if the task waits without holding anything, so that it can be changed or deleted.
pub(crate) fn waits(task: &TaskRecord) -> bool {
    matches!(task.state, TaskState::Scheduled | TaskState::UpForRetry) && task.held_slots == 0
}

/// Applies `edit` to what a waiting task asks for. Returns `None` if nothing changed.
///
/// A change of priority moves the rank by the difference that the policy assigns to it, so the time waited so
/// far still counts.
pub(crate) fn change(
    task: &TaskRecord,
    now: Timestamp,
    ageing: Ageing,
    edit: &mut dyn FnMut(&mut NewTask),
) -> Result<Option<Change>, Invalid> {
    let asked = asked(task);
    let mut edited = asked.clone();
    edit(&mut edited);
    if edited == asked {
        return Ok(None);
    }
    if edited.key != task.key {
        return Err(Invalid::KeyChanged { task: Box::new(task.key.clone()) });
    }
    let [new, old] =
        [edited.priority, task.priority].map(|priority| ageing.rank(priority, Timestamp::UNIX_EPOCH));
    let to = TaskInsert {
        rank: task.rank.saturating_add(new.saturating_sub(old)),
        logical_date: edited.logical_date.unwrap_or(task.enqueued_at),
        enqueued_at: task.enqueued_at,
        ..edited.check(now)?
    };
    let ready_at = match (to.due, task.due) {
        (Some(due), _) => due,
        // It was ready already, or it became ready at its due instant, as a tick would have done.
        (None, None) => task.ready_at,
        (None, Some(due)) if due <= now => task.ready_at,
        (None, Some(_)) => task.recorded_at(now),
    };
    Ok(Some(Change { task: task.lease_ref(), from: task.state, to, ready_at }))
}

/// Returns the task in the form in which it would be enqueued.
fn asked(task: &TaskRecord) -> NewTask {
    let lane = &task.lane;
    let is_plain = |key: &&LimitKey| !lane.counts.contains_key(*key) && lane.share.as_ref() != Some(*key);
    let plain = lane.limits.iter().filter(is_plain);
    NewTask {
        key: task.key.clone(),
        queue: lane.queue.clone(),
        pool: lane.pool.clone(),
        pool_slots: lane.slots,
        also: lane.also.clone(),
        priority: task.priority,
        logical_date: Some(task.logical_date),
        not_before: task.due,
        limits: plain.cloned().collect(),
        counts: lane.counts.clone(),
        share: lane.share.clone(),
        retry: task.retry.clone(),
        lease_loss: task.lease_loss,
        attempt_runs: task.attempt_runs,
        feed: task.feed,
        keep_attempts: task.keep_attempts,
        payload: task.payload.clone(),
    }
}
