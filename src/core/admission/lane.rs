//! Lanes of tasks with equal needs, and their ready tasks.

use serde::{Deserialize, Serialize};

use super::order::OrderKey;
use crate::base::setters;
use crate::id::{LimitKey, PoolName, QueueName};
use crate::time::Timestamp;

/// The number that a store assigned to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub i64);

/// The needs of a task. Tasks with equal needs share a lane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneKey {
    /// The pool.
    pub pool: PoolName,
    /// The slots of the pool that each task needs.
    pub slots: u32,
    /// The limits that each task counts against: sorted, without repetition.
    pub limits: Vec<LimitKey>,
    /// The queue.
    #[serde(default = "QueueName::default_queue", skip_serializing_if = "QueueName::is_default")]
    pub queue: QueueName,
}

impl LaneKey {
    /// Creates the key of the lane of tasks with these needs, in the default queue. Sorts the limits.
    pub fn new(pool: PoolName, slots: u32, mut limits: Vec<LimitKey>) -> Self {
        limits.sort_unstable();
        limits.dedup();
        Self { pool, slots, limits, queue: QueueName::default_queue() }
    }

    setters! {
        /// Sets the queue.
        queue: QueueName;
    }
}

/// A lane with ready tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lane {
    /// Its number in the store.
    pub id: LaneId,
    /// The needs of its tasks.
    pub key: LaneKey,
    /// The number of its ready tasks. A planner requests no more than this many.
    pub ready: u64,
}

impl Lane {
    /// Creates a lane as a store read it.
    pub fn new(id: LaneId, key: LaneKey, ready: u64) -> Self {
        Self { id, key, ready }
    }
}

/// A ready task, with what the planner needs to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its lane.
    pub lane: LaneId,
    /// Its position, which includes its number.
    pub order: OrderKey,
    /// Since when it is ready, if its page requested that.
    pub ready_at: Option<Timestamp>,
}

impl Candidate {
    /// Creates a candidate of this lane.
    pub fn new(lane: LaneId, order: OrderKey) -> Self {
        Self { lane, order, ready_at: None }
    }

    setters! {
        /// Sets since when it is ready.
        ready_at: Some(Timestamp);
    }
}

/// A request for the ready tasks of one lane, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LanePage {
    /// The lane.
    pub lane: LaneId,
    /// Only tasks after this position.
    pub after: Option<OrderKey>,
    /// The most tasks to return. If fewer are returned, the lane has no more.
    pub limit: usize,
    /// Whether to return since when each task is ready.
    pub with_ready_at: bool,
}

impl LanePage {
    /// Creates a request for this many tasks of the lane after that position.
    pub fn new(lane: LaneId, after: Option<OrderKey>, limit: usize) -> Self {
        Self { lane, after, limit, with_ready_at: false }
    }

    setters! {
        /// Sets whether to return since when each task is ready.
        with_ready_at: bool;
    }
}
