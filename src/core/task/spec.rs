//! The tasks that a host enqueues.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attempt::KeptAttempts;
use super::feed::Feed;
use super::record::attempt_run_id;
use crate::admission::{Ageing, LaneKey};
use crate::backoff::RetryPolicy;
use crate::base::setters;
use crate::bounds::{MAX_LIMIT_KEYS, MAX_POOLS, MAX_SLOTS, MAX_TEXT_BYTES};
use crate::error::Invalid;
use crate::id::{LimitKey, PoolName, QueueName, TaskKey};
use crate::lease::TaskId;
use crate::time::Timestamp;

/// What happens to a task whose lease expired because its holder died or was too slow to renew it.
///
/// By default the task is requeued for up to 3 lost leases. That is enough for a task interrupted by a few
/// crashes or deployments, and few enough for a task that kills its workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeaseLoss {
    /// The attempt counts as failed, and the retry policy decides (Airflow's zombies).
    Fail,
    /// The task is scheduled again at once, for up to this many lost leases. The attempt does not count
    /// against the retry policy. Further losses are treated like [`Self::Fail`], so a task that kills its
    /// holder does not run forever.
    Requeue {
        /// The number of lost leases that are forgiven, over all attempts of the task.
        at_most: u32,
    },
}

impl Default for LeaseLoss {
    fn default() -> Self {
        Self::Requeue { at_most: 3 }
    }
}

/// A task to enqueue.
///
/// By default a task
///
/// * is in queue `default`, and needs 1 slot of pool `default_pool`,
/// * has priority 0, no limit keys and no share,
/// * may start at once,
/// * is never retried after a failure,
/// * is requeued after each of its first 3 lost leases,
/// * keeps its failed attempts, and records no attempt as a run,
/// * is not in the feed, and has an empty payload.
///
/// The defaults for a failure and for a lost lease differ on purpose. If a task *failed*, its own code
/// decided so, and it stays failed unless it has a [retry policy](Self::retry). If its lease was *lost*, its
/// worker was killed or cut off, and nothing judged the work. Any process may be killed at any instant, so
/// the task runs again. Use [`LeaseLoss::Fail`] for work that must not run twice, even at the risk that its
/// first run was not finished.
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
///
/// // It also needs a licence, and is two of the calls that an API allows at once.
/// let task = task.also("licence".try_into()?, 1).limit_count("api".try_into()?, 2);
/// assert_eq!((task.also.len(), task.counts.len()), (1, 1));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewTask {
    /// Its identity, unique in the store.
    pub key: TaskKey,
    /// The queue. Only workers that serve it take the task. If no worker does, the task waits with that
    /// reason.
    #[serde(default = "QueueName::default_queue")]
    pub queue: QueueName,
    /// The pool whose slots it needs. If the pool does not exist, the task waits with that reason.
    pub pool: PoolName,
    /// The number of slots it needs, 1 to [`MAX_SLOTS`].
    pub pool_slots: u32,
    /// The slots that it also needs from other pools, 1 to [`MAX_SLOTS`] each. A task can use at most
    /// [`MAX_POOLS`] pools in all. It is admitted when all its pools have room, and then takes all its slots
    /// at once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<PoolName, u32>,
    /// The priority; larger goes first.
    pub priority: i32,
    /// The second order criterion, earlier first: the date that the run is for. If not set, it is the instant
    /// of enqueueing.
    pub logical_date: Option<Timestamp>,
    /// The task takes no part in admission before this instant.
    pub not_before: Option<Timestamp>,
    /// The limits that it counts against, besides its pool; see [`crate::admission::limits`].
    pub limits: Vec<LimitKey>,
    /// How much it counts against a limit if that is not 1; 1 to [`MAX_SLOTS`]. The task carries these keys
    /// as well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<LimitKey, u32>,
    /// The share to which it belongs. See [`Self::share`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<LimitKey>,
    /// When it may run again after a failure.
    pub retry: RetryPolicy,
    /// What happens to it when its lease expires.
    pub lease_loss: LeaseLoss,
    /// Whether its attempts are written to the active-run index. If so, each start opens a run, and the
    /// transaction that ends the attempt also closes the run. The run's id is [`attempt_run_id`].
    #[serde(with = "super::attempt_runs")]
    pub attempt_runs: bool,
    /// Which of its events are in the [feed](crate::service::FeedReader).
    #[serde(default)]
    pub feed: Feed,
    /// Which of its attempts are kept: [`ReadTx::attempts`](crate::store::ReadTx::attempts).
    #[serde(default, skip_serializing_if = "KeptAttempts::is_default")]
    pub keep_attempts: KeptAttempts,
    /// The host's own text, returned with the grant.
    pub payload: String,
}

impl NewTask {
    /// Creates a task with the defaults above.
    pub fn new(key: TaskKey) -> Self {
        Self {
            key,
            queue: QueueName::default_queue(),
            pool: PoolName::default_pool(),
            pool_slots: 1,
            also: BTreeMap::new(),
            priority: 0,
            logical_date: None,
            not_before: None,
            limits: Vec::new(),
            counts: BTreeMap::new(),
            share: None,
            retry: RetryPolicy::none(),
            lease_loss: LeaseLoss::default(),
            attempt_runs: false,
            feed: Feed::Off,
            keep_attempts: KeptAttempts::default(),
            payload: String::new(),
        }
    }

    setters! {
        /// Sets the queue.
        queue: QueueName;
        /// Sets the pool.
        pool: PoolName;
        /// Sets the number of slots it needs, 1 to [`MAX_SLOTS`]; checked when the task is enqueued.
        pool_slots: u32;
        /// Adds slots of another pool that it also needs, 1 to [`MAX_SLOTS`]; checked when the task is
        /// enqueued. If called again for a pool, the last number counts.
        also(pool: PoolName, slots: u32) { also.insert(pool, slots) }
        /// Sets the priority; larger goes first.
        priority: i32;
        /// Sets the date that the run is for.
        logical_date(at: impl Into<Timestamp>) { logical_date = Some(at.into()) }
        /// Keeps the task out of admission until this instant.
        not_before(at: impl Into<Timestamp>) { not_before = Some(at.into()) }
        /// Adds a limit key that it counts against.
        limit(key: LimitKey) { limits.push(key) }
        /// Adds a limit key and how much the task counts against it, 1 to [`MAX_SLOTS`]; checked when the
        /// task is enqueued. If called again for a key, the last number counts.
        limit_count(key: LimitKey, count: u32) { counts.insert(key, count) }
        /// Sets the share to which it belongs, such as a customer or a team.
        ///
        /// Shares with tasks of equal priority in one pool take turns. Each holds a part of the pool in
        /// proportion to its [weight](crate::admission::limits::LimitSpec::weight). The part of a share
        /// without work goes to the others. Within a share the order is the usual one. Tasks without a share
        /// go before tasks of shares with the same priority.
        ///
        /// The key also becomes a limit key of the task.
        share(key: LimitKey) { share = Some(key) }
        /// Sets the retry policy.
        retry: RetryPolicy;
        /// Sets what happens to it when its lease expires.
        lease_loss: LeaseLoss;
        /// Sets whether its attempts are written to the active-run index.
        attempts_as_runs(record: bool) { attempt_runs = record }
        /// Sets which of its events are in the feed.
        feed: Feed;
        /// Sets which of its attempts are kept to be read later.
        keep_attempts: KeptAttempts;
        /// Sets the host's own text, at most [`MAX_TEXT_BYTES`].
        payload(payload: impl Into<String>) { payload = payload.into() }
    }

    /// Returns the row to store.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TaskSlots`], [`Invalid::TaskPools`], [`Invalid::PoolTwice`],
    /// [`Invalid::LimitCount`], [`Invalid::LimitKeys`] or [`Invalid::TooManyBytes`].
    pub fn check(&self, now: Timestamp) -> Result<TaskInsert, Invalid> {
        self.check_with(now, Ageing::None)
    }

    /// Works like [`Self::check`], for a task whose priority grows as it waits.
    ///
    /// # Errors
    ///
    /// The same as [`Self::check`].
    pub fn check_with(&self, now: Timestamp, ageing: Ageing) -> Result<TaskInsert, Invalid> {
        let task = || Box::new(self.key.clone());
        let is_refused = |slots: &u32| *slots == 0 || *slots > MAX_SLOTS;
        let mut needs = std::iter::once((&self.pool, &self.pool_slots)).chain(&self.also);
        if let Some((pool, slots)) = needs.find(|(_, slots)| is_refused(slots)) {
            return Err(Invalid::TaskSlots { task: task(), pool: pool.clone(), slots: *slots });
        }
        if self.also.contains_key(&self.pool) {
            return Err(Invalid::PoolTwice { task: task(), pool: self.pool.clone() });
        }
        if self.also.len() >= MAX_POOLS {
            return Err(Invalid::TaskPools { task: task(), count: self.also.len() + 1 });
        }
        if let Some((limit, count)) = self.counts.iter().find(|(_, count)| is_refused(count)) {
            return Err(Invalid::LimitCount { task: task(), limit: limit.clone(), count: *count });
        }
        if self.payload.len() > MAX_TEXT_BYTES {
            let bytes = self.payload.len();
            return Err(Invalid::TooManyBytes { what: "a task's payload", bytes, cap: MAX_TEXT_BYTES });
        }
        let limits = self.limits.iter().chain(self.counts.keys()).cloned().collect();
        let lane = LaneKey::new(self.pool.clone(), self.pool_slots, limits).queue(self.queue.clone());
        let mut lane = lane.counts(self.counts.clone()).also(self.also.clone());
        if let Some(share) = &self.share {
            lane = lane.share(share.clone(), self.priority);
        }
        if lane.limits.len() > MAX_LIMIT_KEYS {
            return Err(Invalid::LimitKeys { task: task(), count: lane.limits.len() });
        }
        if self.attempt_runs {
            let longest = attempt_run_id(&self.key, TaskId(i64::MAX), u32::MAX).len();
            if longest > crate::id::MAX_BYTES {
                let (what, cap) = ("the run id of a recorded attempt", crate::id::MAX_BYTES);
                return Err(Invalid::TooManyBytes { what, bytes: longest, cap });
            }
        }
        let due = self.not_before.filter(|due| *due > now);
        Ok(TaskInsert {
            key: self.key.clone(),
            rank: ageing.rank(self.priority, due.unwrap_or(now)),
            priority: self.priority,
            logical_date: self.logical_date.unwrap_or(now),
            due,
            enqueued_at: now,
            lane: Arc::new(lane),
            retry: self.retry.clone(),
            lease_loss: self.lease_loss,
            attempt_runs: self.attempt_runs,
            feed: self.feed,
            keep_attempts: self.keep_attempts,
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
    /// Queue, pool, slots and limit keys.
    pub lane: Arc<LaneKey>,
    /// The first order criterion, smaller first.
    pub rank: i64,
    /// The priority from which the rank was computed.
    pub priority: i32,
    /// The second order criterion.
    pub logical_date: Timestamp,
    /// `None` if it is ready.
    pub due: Option<Timestamp>,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it may run again after a failure.
    pub retry: RetryPolicy,
    /// What happens to it when its lease expires.
    pub lease_loss: LeaseLoss,
    /// Whether its attempts are written to the active-run index.
    pub attempt_runs: bool,
    /// Which of its events are in the feed.
    pub feed: Feed,
    /// Which of its attempts are kept.
    pub keep_attempts: KeptAttempts,
    /// The host's own text.
    pub payload: String,
}
