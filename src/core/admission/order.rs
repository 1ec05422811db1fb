//! The fair order of admission, within a lane and across lanes.
//!
//! A task's rank comes from its priority and, optionally, from its waiting time: see
//! [`Ageing`](crate::admission::Ageing). The rank is computed when the task is enqueued and never changes, so
//! stores keep tasks in this order in an index.

use serde::{Deserialize, Serialize};

use crate::lease::TaskId;
use crate::time::Timestamp;

/// The position of a task in the order of admission; smaller goes first. No two tasks of a store are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderKey {
    /// From [`Ageing::rank`](crate::admission::Ageing::rank).
    pub rank: i64,
    /// The date the run is for: earlier first, in whole microseconds.
    pub logical_date: Timestamp,
    /// A task that is not mapped goes before its mapped instances.
    pub map_index: Option<u32>,
    /// The order of arrival.
    pub id: TaskId,
}

impl OrderKey {
    /// Comes before every task.
    pub(crate) const FIRST: Self =
        Self { rank: i64::MIN, logical_date: Timestamp::MIN, map_index: None, id: TaskId(i64::MIN) };

    /// Creates the position of a task.
    pub fn new(rank: i64, logical_date: Timestamp, map_index: Option<u32>, id: TaskId) -> Self {
        Self { rank, logical_date, map_index, id }
    }
}
