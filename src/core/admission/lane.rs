//! Lanes of tasks with equal needs, and their ready tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::order::OrderKey;
use crate::base::setters;
use crate::id::{LimitKey, PoolName, QueueName};
use crate::time::Timestamp;

/// The number that a store assigned to a lane, from 1. The lane's waiting tasks that kept their slots form a
/// lane of their own, with the negated number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub i64);

impl LaneId {
    /// Returns the number of the lane of this lane's tasks that kept their slots.
    pub(crate) fn keeping(self) -> Self {
        Self(-self.0.abs())
    }

    pub(crate) fn keeps_slots(self) -> bool {
        self.0 < 0
    }

    /// Returns the number that the store assigned to the lane.
    pub(crate) fn assigned(self) -> Self {
        Self(self.0.abs())
    }
}

/// The needs of a task. Tasks with equal needs share a lane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneKey {
    /// The pool.
    pub pool: PoolName,
    /// The slots of the pool that each task needs.
    pub slots: u32,
    /// The limits that each task counts against, sorted and without duplicates.
    pub limits: Vec<LimitKey>,
    /// How much each task counts against a limit, where that is more than 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<LimitKey, u32>,
    /// The slots of other pools that each task also needs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<PoolName, u32>,
    /// The queue.
    #[serde(default = "QueueName::default_queue", skip_serializing_if = "QueueName::is_default")]
    pub queue: QueueName,
    /// The share that the tasks belong to: one of the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<LimitKey>,
    /// The priority of the tasks if they belong to a share, otherwise 0. Shares take turns among equal
    /// priorities.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

impl LaneKey {
    /// Creates the key of a lane of tasks with these needs, in the default queue. Sorts the limits.
    pub fn new(pool: PoolName, slots: u32, mut limits: Vec<LimitKey>) -> Self {
        limits.sort_unstable();
        limits.dedup();
        let (counts, also) = (BTreeMap::new(), BTreeMap::new());
        let queue = QueueName::default_queue();
        Self { pool, slots, limits, counts, also, queue, share: None, priority: 0 }
    }

    setters! {
        /// Sets the queue.
        queue: QueueName;
    }

    /// Sets how much each task counts against some of its limits. Counts of 1 are left out.
    #[must_use]
    pub fn counts(mut self, counts: impl IntoIterator<Item = (LimitKey, u32)>) -> Self {
        self.counts = counts.into_iter().filter(|(_, count)| *count > 1).collect();
        self
    }

    /// Sets the slots of other pools that each task needs.
    #[must_use]
    pub fn also(mut self, also: impl IntoIterator<Item = (PoolName, u32)>) -> Self {
        self.also = also.into_iter().collect();
        self
    }

    /// Sets the share that the tasks belong to, and their priority. The share becomes one of the limits.
    #[must_use]
    pub fn share(mut self, share: LimitKey, priority: i32) -> Self {
        if let Err(place) = self.limits.binary_search(&share) {
            self.limits.insert(place, share.clone());
        }
        (self.share, self.priority) = (Some(share), priority);
        self
    }

    /// Returns the level of tasks of a share; smaller goes first.
    pub(crate) fn level(&self) -> i64 {
        -i64::from(self.priority)
    }

    /// Returns the pools that each task needs, with the slots of each: its own pool, then the others in byte
    /// order.
    pub fn pools(&self) -> impl Iterator<Item = (&PoolName, u32)> {
        let also = self.also.iter().map(|(pool, slots)| (pool, *slots));
        std::iter::once((&self.pool, self.slots)).chain(also)
    }

    /// Returns how many slots of each pool tasks hold that together hold this many slots of their own pool. A
    /// task holds either everything it needs of all its pools, or nothing.
    pub(crate) fn held(&self, slots: i64) -> impl Iterator<Item = (&PoolName, i64)> {
        let holders = slots / i64::from(self.slots).max(1);
        self.pools().map(move |(pool, needs)| (pool, holders.saturating_mul(needs.into())))
    }

    /// Returns the limits in key order, each with how much a task counts against it.
    pub fn counted(&self) -> impl Iterator<Item = (&LimitKey, u32)> {
        self.limits.iter().map(|key| (key, self.counts.get(key).copied().unwrap_or(1)))
    }
}

/// A lane with ready tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lane {
    /// Its number in the store.
    pub id: LaneId,
    /// The needs of its tasks.
    pub key: Arc<LaneKey>,
    /// The number of its ready tasks. A planner requests no more than this.
    pub ready: u64,
    /// True if these tasks still hold the slots of all their pools, which they kept while sensing.
    pub keeps_slots: bool,
    /// True if a mark says that no task of the lane fits.
    pub sleeps: bool,
}

impl Lane {
    /// Creates a lane from a store's data.
    pub fn new(id: LaneId, key: impl Into<Arc<LaneKey>>, ready: u64) -> Self {
        let key = key.into();
        Self { id, key, ready, keeps_slots: false, sleeps: false }
    }

    setters! {
        /// Sets whether its tasks still hold slots that they kept.
        keeps_slots: bool;
        /// Sets whether a mark says that no task of the lane fits.
        sleeps: bool;
    }
}

/// A ready task, with what the planner needs to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its lane.
    pub lane: LaneId,
    /// Its position, which includes its task number.
    pub order: OrderKey,
    /// When it became ready, if its page requested that.
    pub ready_at: Option<Timestamp>,
}

impl Candidate {
    /// Creates a candidate of this lane.
    pub fn new(lane: LaneId, order: OrderKey) -> Self {
        Self { lane, order, ready_at: None }
    }

    setters! {
        /// Sets when it became ready.
        ready_at: Some(Timestamp);
    }
}

/// A request for the ready tasks of one lane, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LanePage {
    /// The lane.
    pub lane: LaneId,
    /// Only tasks after this position; `None` starts at the beginning.
    pub after: Option<OrderKey>,
    /// The most tasks to return. If fewer are returned, the lane has no more.
    pub limit: usize,
    /// Whether to return when each task became ready.
    pub with_ready_at: bool,
}

impl LanePage {
    /// Creates a request for this many tasks of the lane after this position.
    pub fn new(lane: LaneId, after: Option<OrderKey>, limit: usize) -> Self {
        Self { lane, after, limit, with_ready_at: false }
    }

    setters! {
        /// Sets whether to return when each task became ready.
        with_ready_at: bool;
    }
}
