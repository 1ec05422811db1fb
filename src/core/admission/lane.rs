//! Lanes, and the order within and across them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::base::setters;
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskId;

/// The number a store gave a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub i64);

/// What a task needs: tasks with equal needs share a lane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneKey {
    /// The pool.
    pub pool: PoolName,
    /// Slots of it, for each task.
    pub slots: u32,
    /// The limits each task counts against: sorted, without repetition.
    pub limits: Vec<LimitKey>,
}

impl LaneKey {
    /// The lane of tasks with these needs; sorts the limits.
    pub fn new(pool: PoolName, slots: u32, mut limits: Vec<LimitKey>) -> Self {
        limits.sort_unstable();
        limits.dedup();
        Self { pool, slots, limits }
    }
}

/// A lane with ready tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lane {
    /// Its number in the store.
    pub id: LaneId,
    /// What its tasks need.
    pub key: LaneKey,
    /// How many ready tasks it has. A planner asks for no more than these.
    pub ready: u64,
}

impl Lane {
    /// A lane as a store read it.
    pub fn new(id: LaneId, key: LaneKey, ready: u64) -> Self {
        Self { id, key, ready }
    }
}

/// The place of a task in the order of admission; smaller goes first. No two tasks of a store are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderKey {
    /// From [`Ageing::rank`](crate::admission::Ageing::rank).
    pub rank: i64,
    /// Earlier first, in whole microseconds.
    pub logical_date: DateTime<Utc>,
    /// A task that is not mapped goes before its mapped ones.
    pub map_index: Option<u32>,
    /// Arrival.
    pub id: TaskId,
}

impl OrderKey {
    /// The place of a task.
    pub fn new(rank: i64, logical_date: DateTime<Utc>, map_index: Option<u32>, id: TaskId) -> Self {
        Self { rank, logical_date, map_index, id }
    }
}

/// A ready task, as far as the planner needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its lane.
    pub lane: LaneId,
    /// Its place, and with it its number.
    pub order: OrderKey,
    /// Since when it is ready, if its page asked for that.
    pub ready_at: Option<DateTime<Utc>>,
}

impl Candidate {
    /// A candidate of this lane.
    pub fn new(lane: LaneId, order: OrderKey) -> Self {
        Self { lane, order, ready_at: None }
    }

    setters! {
        /// Tells since when it is ready.
        ready_at: Some(DateTime<Utc>);
    }
}

/// Asks for the ready tasks of one lane, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LanePage {
    /// The lane.
    pub lane: LaneId,
    /// Only tasks after this place.
    pub after: Option<OrderKey>,
    /// At most this many. Fewer in the answer mean that the lane has no more.
    pub limit: usize,
    /// Whether to tell since when each of them is ready.
    pub with_ready_at: bool,
}

impl LanePage {
    /// Asks for this many tasks of the lane after that place.
    pub fn new(lane: LaneId, after: Option<OrderKey>, limit: usize) -> Self {
        Self { lane, after, limit, with_ready_at: false }
    }

    setters! {
        /// Sets whether to tell since when each of the tasks is ready.
        with_ready_at: bool;
    }
}
