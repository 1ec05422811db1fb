//! Tasks: what a host asks to have run, and what is known of it since.
//!
//! ```text
//! enqueue ──> Scheduled ──admit──> Queued ──start──> Running ──finish──> Success | Failed | Skipped
//!                ^  ^              (a lease on pool slots)  │  │
//!                │  └── not before t ◄── UpForRetry ◄───────┘  └─register─> Sensing (slots given back)
//!                └───────── resume, or straight to its end ◄── landed | timed out | failed
//! ```
//!
//! A task that may not start before some instant is [`TaskState::Scheduled`] or [`TaskState::UpForRetry`]
//! with a *due* instant; it takes no part in admission until a tick at or after that instant promotes it. A
//! task without a due instant in state `Scheduled` is *ready*.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::admission::{Ageing, LaneKey, OrderKey};
use crate::backoff::RetryPolicy;
use crate::base::setters;
use crate::bounds::{MAX_LIMIT_KEYS, MAX_SLOTS, MAX_TEXT_BYTES};
use crate::error::Invalid;
use crate::id::{LimitKey, PoolName, TaskKey};
use crate::lease::{Lease, LeaseRef, TaskNo};
use crate::run::RunKey;
use crate::time;

/// Where a task is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskState {
    /// Waits for slots, or for its due instant.
    Scheduled,
    /// Admitted: holds slots under a lease, did not start yet.
    Queued,
    /// Started: holds slots under a lease.
    Running,
    /// Failed, and waits for its due instant to be tried again.
    UpForRetry,
    /// Waits as a registered sensor, without a lease.
    Sensing,
    /// Ended well.
    Success,
    /// Ended badly, and is not tried again.
    Failed,
    /// Ended without having done its work, by intention.
    Skipped,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Queued,
        Self::Running,
        Self::UpForRetry,
        Self::Sensing,
        Self::Success,
        Self::Failed,
        Self::Skipped,
    ];

    /// True for [`Self::Success`], [`Self::Failed`] and [`Self::Skipped`].
    pub fn is_end(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Skipped)
    }

    /// True for [`Self::Queued`] and [`Self::Running`]: the task has a lease.
    pub fn is_leased(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// The name that is stored and shown, in Airflow's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::UpForRetry => "up_for_retry",
            Self::Sensing => "sensing",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What becomes of a task whose lease expired: its holder died, or was too slow to renew.
///
/// The default requeues it for up to 3 lost leases: enough for one that a few crashes or deployments
/// interrupt, and few enough for one that kills its workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeaseLoss {
    /// The attempt counts as failed; the retry policy decides (Airflow's zombies).
    Fail,
    /// The task is scheduled again at once and the attempt does not count against the retry policy, for up to
    /// this many lost leases; after that as [`Self::Fail`], so that a task that kills its holder is not run
    /// for ever.
    Requeue {
        /// How many lost leases are forgiven, over all attempts of the task.
        at_most: u32,
    },
}

impl Default for LeaseLoss {
    fn default() -> Self {
        Self::Requeue { at_most: 3 }
    }
}

/// Whether the attempts of a task are written to the active-run index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptRuns {
    /// They are not.
    #[default]
    Off,
    /// Each start opens a run, and whatever ends the attempt closes it in the same transaction. The run's id
    /// is [`attempt_run_id`].
    Record,
}

/// A task to be enqueued.
///
/// Defaults: pool `default_pool`, 1 slot, priority 0, no limit keys, may start at once, never retried,
/// requeued after each of its first 3 lost leases, attempts not recorded, empty payload.
///
/// The two defaults for what goes wrong differ on purpose. A task that *failed* was judged by its own code:
/// it stays failed unless it has a [retry policy](Self::retry). A task whose lease was *lost* was judged by
/// nobody: its worker was killed, or cut off. Any process may be killed at any instant, so the task runs
/// again. Work that must not run twice, even if its first run may not have ended, asks for
/// [`LeaseLoss::Fail`].
///
/// # Examples
///
/// ```
/// use stationmaster::{NewTask, TaskKey};
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", "load")?)
///     .pool("database".try_into()?)
///     .pool_slots(2)
///     .priority(10);
/// assert_eq!(task.pool_slots, 2);
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewTask {
    /// Its identity, unique in the store.
    pub key: TaskKey,
    /// The pool whose slots it needs. It need not exist: the task then waits, with that reason.
    pub pool: PoolName,
    /// How many slots it needs, 1 to [`MAX_SLOTS`].
    pub pool_slots: u32,
    /// Larger goes first.
    pub priority: i32,
    /// The second order criterion, earlier first: the date the run is for. None means the instant of
    /// enqueueing.
    pub logical_date: Option<DateTime<Utc>>,
    /// The task takes no part in admission before this instant.
    pub not_before: Option<DateTime<Utc>>,
    /// The limits it counts against, besides its pool; see [`crate::admission::limits`].
    pub limits: Vec<LimitKey>,
    /// When it may run again after a failure.
    pub retry: RetryPolicy,
    /// What becomes of it when its lease expires.
    pub lease_loss: LeaseLoss,
    /// Whether its attempts are written to the active-run index.
    pub attempt_runs: AttemptRuns,
    /// The host's own text, handed back with the grant.
    pub payload: String,
}

impl NewTask {
    /// A task with the defaults above.
    pub fn new(key: TaskKey) -> Self {
        Self {
            key,
            pool: PoolName::default_pool(),
            pool_slots: 1,
            priority: 0,
            logical_date: None,
            not_before: None,
            limits: Vec::new(),
            retry: RetryPolicy::none(),
            lease_loss: LeaseLoss::default(),
            attempt_runs: AttemptRuns::Off,
            payload: String::new(),
        }
    }

    setters! {
        /// Sets the pool.
        pool: PoolName;
        /// Sets the number of slots it needs, 1 to [`MAX_SLOTS`]; checked when it is enqueued.
        pool_slots: u32;
        /// Sets the priority; larger goes first.
        priority: i32;
        /// Sets the date the run is for.
        logical_date: Some(DateTime<Utc>);
        /// Keeps the task out of admission until this instant.
        not_before: Some(DateTime<Utc>);
        /// Adds a limit key that it counts against.
        limit(key: LimitKey) { limits.push(key) }
        /// Sets the retry policy.
        retry: RetryPolicy;
        /// Sets what becomes of it when its lease expires.
        lease_loss: LeaseLoss;
        /// Sets whether its attempts are written to the active-run index.
        attempt_runs: AttemptRuns;
        /// Sets the host's own text, at most [`MAX_TEXT_BYTES`].
        payload(payload: impl Into<String>) { payload = payload.into() }
    }

    /// The row to be stored, with instants truncated to the microsecond.
    ///
    /// # Errors
    ///
    /// [`Invalid::TaskSlots`], [`Invalid::LimitKeys`], [`Invalid::TooManyBytes`].
    pub fn check(&self, now: DateTime<Utc>) -> Result<TaskInsert, Invalid> {
        self.check_with(now, Ageing::None)
    }

    /// [`Self::check`], for a task whose priority grows while it waits.
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    pub fn check_with(&self, now: DateTime<Utc>, ageing: Ageing) -> Result<TaskInsert, Invalid> {
        let task = || Box::new(self.key.clone());
        if self.pool_slots == 0 || self.pool_slots > MAX_SLOTS {
            return Err(Invalid::TaskSlots { task: task(), slots: self.pool_slots });
        }
        if self.payload.len() > MAX_TEXT_BYTES {
            let bytes = self.payload.len();
            return Err(Invalid::TooManyBytes { what: "a task's payload", bytes, cap: MAX_TEXT_BYTES });
        }
        let lane = LaneKey::new(self.pool.clone(), self.pool_slots, self.limits.clone());
        if lane.limits.len() > MAX_LIMIT_KEYS {
            return Err(Invalid::LimitKeys { task: task(), count: lane.limits.len() });
        }
        if self.attempt_runs == AttemptRuns::Record {
            let longest = attempt_run_id(&self.key, TaskNo(i64::MAX), u32::MAX).len();
            if longest > crate::id::MAX_BYTES {
                let (what, cap) = ("the run id of a recorded attempt", crate::id::MAX_BYTES);
                return Err(Invalid::TooManyBytes { what, bytes: longest, cap });
            }
        }
        let now = time::truncate(now);
        let due = self.not_before.map(time::truncate).filter(|due| *due > now);
        Ok(TaskInsert {
            key: self.key.clone(),
            rank: ageing.rank(self.priority, due.unwrap_or(now)),
            priority: self.priority,
            logical_date: self.logical_date.map_or(now, time::truncate),
            due,
            enqueued_at: now,
            lane,
            retry: self.retry.clone(),
            lease_loss: self.lease_loss,
            attempt_runs: self.attempt_runs,
            payload: self.payload.clone(),
        })
    }
}

/// A checked task, ready for [`crate::store::contract::TaskTx::insert_tasks_if_absent`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskInsert {
    /// Its identity.
    pub key: TaskKey,
    /// Pool, slots and limit keys.
    pub lane: LaneKey,
    /// The first order criterion, smaller first.
    pub rank: i64,
    /// What the rank was made of.
    pub priority: i32,
    /// The second order criterion.
    pub logical_date: DateTime<Utc>,
    /// None if it is ready.
    pub due: Option<DateTime<Utc>>,
    /// When it was enqueued.
    pub enqueued_at: DateTime<Utc>,
    /// When it may run again after a failure.
    pub retry: RetryPolicy,
    /// What becomes of it when its lease expires.
    pub lease_loss: LeaseLoss,
    /// Whether its attempts are written to the active-run index.
    pub attempt_runs: AttemptRuns,
    /// The host's own text.
    pub payload: String,
}

/// A task as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskRecord {
    /// Its number in the store, in order of arrival.
    pub no: TaskNo,
    /// Its identity.
    pub key: TaskKey,
    /// Pool, slots and limit keys.
    pub lane: LaneKey,
    /// The first order criterion, smaller first.
    pub rank: i64,
    /// What the rank was made of.
    pub priority: i32,
    /// The second order criterion: the date the run is for.
    pub logical_date: DateTime<Utc>,
    /// When it may run again after a failure.
    pub retry: RetryPolicy,
    /// What becomes of it when its lease expires.
    pub lease_loss: LeaseLoss,
    /// Whether its attempts are written to the active-run index.
    pub attempt_runs: AttemptRuns,
    /// The host's own text.
    pub payload: String,
    /// Where it is on its way.
    pub state: TaskState,
    /// What its present state waits for, if that is an instant.
    pub due: Option<DateTime<Utc>>,
    /// How many times it was granted; 1 while its first attempt waits to start or runs.
    pub attempt: u32,
    /// How many of its attempts were forgiven and do not count against the retry policy.
    pub forgiven: u32,
    /// How many of its leases were lost since it was enqueued or last cleared: they expired before its holder
    /// was done.
    pub lost: u32,
    /// The fencing token of its latest grant; 0 before the first.
    pub epoch: i64,
    /// Its lease, in states [`TaskState::Queued`] and [`TaskState::Running`].
    pub lease: Option<Lease>,
    /// Slots of its pool that it holds now.
    pub held_slots: u32,
    /// When it was enqueued.
    pub enqueued_at: DateTime<Utc>,
    /// Since when it waits for slots, or did when it was granted: when it was enqueued, came due, or came
    /// back from a sensor. A task that was given back, or requeued after its lease was lost, keeps what it
    /// had before that attempt.
    pub ready_at: DateTime<Utc>,
    /// When it was last granted.
    pub queued_at: Option<DateTime<Utc>>,
    /// When its first attempt started.
    pub first_started_at: Option<DateTime<Utc>>,
    /// When its last attempt started.
    pub started_at: Option<DateTime<Utc>>,
    /// When an attempt of it ended last, or when it was marked or cleared.
    pub ended_at: Option<DateTime<Utc>>,
    /// Why it failed or was skipped last.
    pub message: Option<String>,
    /// What it ended with, or what its sensor landed with: the host's text.
    pub value: Option<String>,
    /// The state to which its holder's [`finish`](crate::store::Tx::finish) moved it when its last lease
    /// ended. `None` if something else ended that lease, or moved the task since: the reaper, a mark, a
    /// clear, a sensor.
    pub finished: Option<TaskState>,
}

impl TaskRecord {
    /// The row of a task that was just inserted.
    pub fn inserted(no: TaskNo, insert: TaskInsert) -> Self {
        Self {
            no,
            key: insert.key,
            lane: insert.lane,
            rank: insert.rank,
            priority: insert.priority,
            logical_date: insert.logical_date,
            retry: insert.retry,
            lease_loss: insert.lease_loss,
            attempt_runs: insert.attempt_runs,
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

    /// Names the latest grant of this task.
    pub fn lease_ref(&self) -> LeaseRef {
        LeaseRef::new(self.no, self.epoch)
    }

    /// The key under which this attempt of the task is in the active-run index, if attempts are recorded.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Id`] if the id were too long, which is checked when such a task is enqueued.
    pub fn attempt_run(&self, attempt: u32) -> crate::Result<RunKey> {
        Ok(RunKey::new(&self.key.namespace, attempt_run_id(&self.key, self.no, attempt))?)
    }

    /// Its place in the order of admission.
    pub fn order(&self) -> OrderKey {
        OrderKey::new(self.rank, self.logical_date, self.key.map_index, self.no)
    }

    /// The instant under which to record what happens to this task at `now`: `now`, or if that is earlier the
    /// latest instant that is recorded of it. So the instants of one task never run backwards, although each
    /// caller reads its clock before it waits for other writers, and clocks differ.
    ///
    /// Only what is recorded follows it. Expiries, retries and timeouts are computed from `now`, so that a
    /// clock which ran ahead once delays nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::task::TaskRecord;
    /// use stationmaster::time::from_micros;
    /// use stationmaster::{NewTask, TaskKey, TaskNo};
    ///
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let record = TaskRecord::inserted(TaskNo(1), task.check(from_micros(20))?);
    /// assert_eq!([15, 25].map(|now| record.recorded_at(from_micros(now))), [20, 25].map(from_micros));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn recorded_at(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        // While the task waits for an instant, `ready_at` is that instant: it has not come yet.
        let ready_at = Some(self.ready_at).filter(|_| self.due.is_none());
        let recorded = [ready_at, self.queued_at, self.started_at, self.ended_at];
        recorded.into_iter().flatten().fold(now.max(self.enqueued_at), DateTime::max)
    }

    /// True if admission looks at it: `Scheduled`, and not waiting for an instant.
    pub fn is_ready(&self) -> bool {
        self.state == TaskState::Scheduled && self.due.is_none()
    }
}

/// The id under which an attempt is written to the active-run index: `workflow/run/task[map
/// index]#attempt@number`.
///
/// The task's number in the store makes it unique: names may hold `/` and `[`, and a key may be enqueued
/// again after its task was forgotten.
///
/// # Examples
///
/// ```
/// use stationmaster::{TaskKey, TaskNo, task::attempt_run_id};
/// let key = TaskKey::new("prod", "nightly", "r1", "load")?.mapped(3);
/// assert_eq!(attempt_run_id(&key, TaskNo(17), 2), "nightly/r1/load[3]#2@17");
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
pub fn attempt_run_id(key: &TaskKey, no: TaskNo, attempt: u32) -> String {
    let TaskKey { workflow, run, task, .. } = key;
    let index = key.map_index.map_or_else(String::new, |index| format!("[{index}]"));
    format!("{workflow}/{run}/{task}{index}#{attempt}@{}", no.0)
}
