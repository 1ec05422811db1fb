//! The stored row of a task.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attempt::KeptAttempts;
use super::feed::Feed;
use super::spec::{LeaseLoss, TaskInsert};
use super::state::TaskState;
use crate::admission::{LaneKey, OrderKey};
use crate::backoff::RetryPolicy;
use crate::id::TaskKey;
use crate::lease::{Lease, LeaseRef, TaskId};
use crate::run::RunKey;
use crate::time::Timestamp;

/// A task as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskRecord {
    /// Its number in the store, in order of arrival.
    pub id: TaskId,
    /// Its identity.
    pub key: TaskKey,
    /// Queue, pool, slots and limit keys. A store shares them between the records of a lane.
    pub lane: Arc<LaneKey>,
    /// The first order criterion, smaller first.
    pub rank: i64,
    /// The priority from which the rank was computed.
    pub priority: i32,
    /// The second order criterion: the date that the run is for.
    pub logical_date: Timestamp,
    /// When it may run again after a failure.
    pub retry: RetryPolicy,
    /// What happens to it when its lease expires.
    pub lease_loss: LeaseLoss,
    /// Whether its attempts are written to the active-run index.
    #[serde(with = "super::attempt_runs")]
    pub attempt_runs: bool,
    /// Which of its events are in the [feed](crate::service::FeedReader).
    #[serde(default)]
    pub feed: Feed,
    /// Which of its attempts are kept.
    #[serde(default, skip_serializing_if = "KeptAttempts::is_default")]
    pub keep_attempts: KeptAttempts,
    /// The host's own text.
    pub payload: String,
    /// Its current state.
    pub state: TaskState,
    /// The instant that it waits for in its current state. `None` if it waits for no instant.
    pub due: Option<Timestamp>,
    /// The number of times it was granted. It is 1 while its first attempt waits to start or runs. A lost lease, an attempt
    /// that was given back and a sensor that resumes its task raise it, too; subtract [`forgiven`](Self::forgiven) for the
    /// number that the retry policy counts.
    pub attempt: u32,
    /// The number of its attempts that were forgiven. They do not count against the retry policy.
    pub forgiven: u32,
    /// The number of its leases that were lost since it was enqueued or last cleared. A lease is lost if it
    /// expires before its holder is done.
    pub lost: u32,
    /// The fencing token of its latest grant; 0 before the first grant.
    pub epoch: i64,
    /// Its lease, in states [`TaskState::Queued`] and [`TaskState::Running`].
    pub lease: Option<Lease>,
    /// The slots of its pool that it holds now. It holds slots with its lease. If its pool says so, it also
    /// keeps them while it senses and until it continues.
    pub held_slots: u32,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it began to wait for slots: when it was enqueued, became due, or came back from a sensor. A grant
    /// does not change this. So a task that was given back, or requeued after its lease was lost, keeps the
    /// value from before that attempt.
    pub ready_at: Timestamp,
    /// When it was last granted.
    pub queued_at: Option<Timestamp>,
    /// When its first attempt started.
    pub first_started_at: Option<Timestamp>,
    /// When its last attempt started.
    pub started_at: Option<Timestamp>,
    /// When one of its attempts last ended, or when it was marked or cleared.
    pub ended_at: Option<Timestamp>,
    /// Why it last failed or was skipped.
    pub message: Option<String>,
    /// The value with which it ended or its sensor landed: the host's text. It is empty if the task continues
    /// after its sensor landed without a value. While the task has a lease, it is `None` unless a landing
    /// came before.
    pub value: Option<String>,
    /// The state to which its holder's [`finish`](crate::store::Tx::finish) moved it when its last lease
    /// ended. `None` if anything else ended that lease or has moved the task since: upkeep, a mark, a clear
    /// or a sensor.
    pub finished: Option<TaskState>,
}

impl TaskRecord {
    /// Creates the row of a task that was just inserted.
    pub fn inserted(id: TaskId, insert: TaskInsert) -> Self {
        Self {
            id,
            key: insert.key,
            lane: insert.lane,
            rank: insert.rank,
            priority: insert.priority,
            logical_date: insert.logical_date,
            retry: insert.retry,
            lease_loss: insert.lease_loss,
            attempt_runs: insert.attempt_runs,
            feed: insert.feed,
            keep_attempts: insert.keep_attempts,
            payload: insert.payload,
            state: TaskState::Scheduled,
            due: insert.due,
            attempt: 0,
            forgiven: 0,
            lost: 0,
            epoch: 0,
            lease: None,
            held_slots: 0,
            enqueued_at: insert.enqueued_at,
            ready_at: insert.due.unwrap_or(insert.enqueued_at),
            queued_at: None,
            first_started_at: None,
            started_at: None,
            ended_at: None,
            message: None,
            value: None,
            finished: None,
        }
    }

    /// Returns the lease that names the latest grant of this task.
    pub fn lease_ref(&self) -> LeaseRef {
        LeaseRef::new(self.id, self.epoch)
    }

    /// Returns the key of this attempt of the task in the active-run index, if attempts are recorded.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::LongName`](crate::error::Invalid::LongName) if the id is too long. For tasks whose
    /// attempts are recorded, this is checked when they are enqueued.
    pub fn attempt_run(&self, attempt: u32) -> crate::Result<RunKey> {
        RunKey::new(&self.key.namespace, attempt_run_id(&self.key, self.id, attempt))
    }

    /// Returns its position in the order of admission.
    pub fn order(&self) -> OrderKey {
        OrderKey::new(self.rank, self.logical_date, self.key.map_index, self.id)
    }

    /// Returns the instant under which to record what happens to this task at `now`. This is `now`, or the
    /// latest instant recorded for the task if that is later.
    ///
    /// The recorded instants of a task therefore never run backwards, although clocks differ and each caller
    /// reads its clock before it waits for the writer lock. Expiries, retries and timeouts are computed from
    /// `now` itself, so a clock that once ran ahead delays nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::task::TaskRecord;
    /// use stationmaster::{NewTask, TaskId, TaskKey, Timestamp};
    ///
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let record = TaskRecord::inserted(TaskId(1), task.check(Timestamp::from_micros(20))?);
    /// assert_eq!([15, 25].map(|now| record.recorded_at(Timestamp::from_micros(now))), [20, 25].map(Timestamp::from_micros));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn recorded_at(&self, now: Timestamp) -> Timestamp {
        // While the task waits for an instant, `ready_at` is that instant, which has not come yet.
        let ready_at = Some(self.ready_at).filter(|_| self.due.is_none());
        let recorded = [ready_at, self.queued_at, self.started_at, self.ended_at];
        recorded.into_iter().flatten().fold(now.max(self.enqueued_at), Timestamp::max)
    }

    /// Returns true if it is ready and still holds the slots that it kept while it sensed.
    pub(crate) fn keeps_slots(&self) -> bool {
        self.is_ready() && self.held_slots > 0
    }

    /// Returns true if admission considers it: it is `Scheduled` and waits for no instant.
    pub fn is_ready(&self) -> bool {
        self.state == TaskState::Scheduled && self.due.is_none()
    }
}

/// Returns the id under which an attempt is written to the active-run index:
/// `workflow/run/task[map index]#attempt@number`.
///
/// The task's number in the store makes the id unique. The other parts are not enough: names may contain `/`
/// and `[`, and a key may be enqueued again after its task was forgotten.
///
/// # Examples
///
/// ```
/// use stationmaster::{TaskKey, TaskId, task::attempt_run_id};
/// let key = TaskKey::new("prod", "nightly", "r1", "load")?.mapped(3);
/// assert_eq!(attempt_run_id(&key, TaskId(17), 2), "nightly/r1/load[3]#2@17");
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn attempt_run_id(key: &TaskKey, id: TaskId, attempt: u32) -> String {
    let TaskKey { workflow, run, task, .. } = key;
    let index = key.map_index.map_or_else(String::new, |index| format!("[{index}]"));
    format!("{workflow}/{run}/{task}{index}#{attempt}@{}", id.0)
}
