//! Why a task was not admitted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::lane::{Lane, LaneKey};
use super::limits::Rate;
use super::subject::Subject;
use crate::id::{LimitKey, PoolName, QueueName};
use crate::lease::TaskId;
use crate::time::Timestamp;

/// Why a task was not admitted: the first reason that applies at the end of the tick, in the order below. Its
/// numbers are those in the store after the tick.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::Reason;
/// let reason = Reason::PoolFull { pool: "etl".try_into()?, open: 0, total: 16, needs: 2 };
/// assert_eq!(reason.to_string(), "pool etl: 0 open of 16, needs 2");
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// One of its subjects is paused. The task waits until that subject is resumed.
    Paused {
        /// The first paused subject: its queue, its pools, then its keys in byte order, each before its
        /// families.
        subject: Subject,
    },
    /// Admitters serve other queues, but none serves this one. The task waits until an admitter does. Only
    /// [`explain`](crate::store::ReadTx::explain) returns this reason.
    Unserved {
        /// The queue.
        queue: QueueName,
        /// The number of tasks waiting in it.
        waiting: u64,
    },
    /// The pool does not exist. The task waits until the pool is created.
    PoolUnknown {
        /// The pool that the task names.
        pool: PoolName,
    },
    /// The pool is smaller than what the task needs. The task waits until the pool is enlarged.
    NeverFits {
        /// The pool.
        pool: PoolName,
        /// The total slots of the pool.
        total: u32,
        /// The slots that the task needs.
        needs: u32,
    },
    /// The pool has too few open slots.
    PoolFull {
        /// The pool.
        pool: PoolName,
        /// The open slots; negative after a busy pool was shrunk.
        open: i64,
        /// The total slots of the pool.
        total: u32,
        /// The slots that the task needs.
        needs: u32,
    },
    /// A limit has no room for it.
    LimitReached {
        /// The limit: the first in byte order if several have no room.
        limit: LimitKey,
        /// What the leased tasks count against it: 1 each, unless they set another count.
        used: i64,
        /// The most that may count against it at once.
        max: u32,
        /// How much the task counts.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        needs: u32,
    },
    /// The rate of a limit has no token left.
    RateSpent {
        /// The limit: the first in byte order if several have no token.
        limit: LimitKey,
        /// The rate that applies to it.
        rate: Rate,
        /// When there will be a token, unless another start takes it.
        next: Timestamp,
    },
    /// The definition of the task's workflow is missing. Only with [`super::AirflowWindow`].
    WorkflowMissing {
        /// The workflow.
        workflow: LimitKey,
    },
    /// The task would fit, but open slots of one of its pools are reserved for an earlier task. Only with
    /// [`super::Policy::Reserve`].
    Reserved {
        /// The pool.
        pool: PoolName,
        /// The number of its open slots.
        open: i64,
        /// The task for which they are reserved.
        task: TaskId,
    },
    /// The task would fit, but the window did not reach it, or it was excluded along with another task. Only
    /// with [`super::AirflowWindow`].
    OutsideWindow {
        /// The number of tasks that each round considered.
        size: usize,
    },
    /// The task would fit, but another transaction is changing it. A tick does not wait for other
    /// transactions. Only on PostgreSQL.
    Busy,
    /// The tick admitted as many tasks as it was allowed to.
    BudgetSpent {
        /// The number of tasks it was allowed to admit.
        budget: usize,
    },
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { subject } => write!(f, "{subject}: paused"),
            Self::Unserved { queue, waiting } => {
                write!(f, "queue {queue}: no one serves it; tasks that wait in it: {waiting}")
            }
            Self::PoolUnknown { pool } => write!(f, "pool {pool}: does not exist"),
            Self::NeverFits { pool, total, needs } => {
                write!(f, "pool {pool}: has {total} slots in all, needs {needs}")
            }
            Self::PoolFull { pool, open, total, needs } => {
                write!(f, "pool {pool}: {open} open of {total}, needs {needs}")
            }
            Self::LimitReached { limit, used, max, needs: 1 } => write!(f, "limit {limit}: {used} of {max}"),
            Self::LimitReached { limit, used, max, needs } => {
                write!(f, "limit {limit}: {used} of {max}, needs {needs}")
            }
            Self::RateSpent { limit, rate, next } => {
                let period = rate.period().as_secs_f64();
                write!(f, "limit {limit}: {} starts in {period} s used up, the next at {next}", rate.starts())
            }
            Self::WorkflowMissing { workflow } => write!(f, "{workflow}: its definition is missing"),
            Self::Reserved { pool, open, task } => {
                write!(f, "pool {pool}: its {open} open slots gather for task number {}", task.0)
            }
            Self::OutsideWindow { size } => write!(f, "tick: not reached by its windows of {size} tasks"),
            Self::Busy => write!(f, "tick: other transactions are changing it"),
            Self::BudgetSpent { budget } => write!(f, "tick: all {budget} admissions used"),
        }
    }
}

impl Reason {
    /// Every name, in the order in which the reasons are checked.
    pub const NAMES: [&'static str; 12] = [
        "paused",
        "unserved",
        "pool_unknown",
        "never_fits",
        "pool_full",
        "limit_reached",
        "rate_spent",
        "workflow_missing",
        "reserved",
        "outside_window",
        "busy",
        "budget_spent",
    ];

    /// Returns the name used in JSON and as a metrics label. It is the reason without its numbers, for
    /// counting.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::admission::Reason;
    /// assert_eq!(Reason::BudgetSpent { budget: 512 }.name(), "budget_spent");
    /// ```
    pub fn name(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Unserved { .. } => "unserved",
            Self::PoolUnknown { .. } => "pool_unknown",
            Self::NeverFits { .. } => "never_fits",
            Self::PoolFull { .. } => "pool_full",
            Self::LimitReached { .. } => "limit_reached",
            Self::RateSpent { .. } => "rate_spent",
            Self::WorkflowMissing { .. } => "workflow_missing",
            Self::Reserved { .. } => "reserved",
            Self::OutsideWindow { .. } => "outside_window",
            Self::Busy => "busy",
            Self::BudgetSpent { .. } => "budget_spent",
        }
    }

    /// Returns the earliest instant at which the reason may change on its own; `None` if that depends on
    /// others.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::admission::Reason;
    /// assert_eq!(Reason::BudgetSpent { budget: 512 }.changes_at(), None);
    /// ```
    pub fn changes_at(&self) -> Option<Timestamp> {
        match self {
            Self::RateSpent { next, .. } => Some(*next),
            _ => None,
        }
    }
}

/// Ready tasks of one lane that a tick did not admit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Refusal {
    /// The needs of the tasks.
    pub lane: LaneKey,
    /// True if these tasks still hold the slots of their pools, which they kept while sensing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_slots: bool,
    /// The number of tasks.
    pub tasks: u64,
    /// Why the first of them was not admitted. It applies to all of them.
    pub reason: Reason,
}

impl Refusal {
    pub(super) fn new(lane: &Lane, tasks: u64, reason: Reason) -> Self {
        Self { lane: LaneKey::clone(&lane.key), keeps_slots: lane.keeps_slots, tasks, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_in_json() {
        let (pool, key) = (PoolName::default_pool(), LimitKey::new("k").unwrap());
        let rate = Rate::new(1, std::time::Duration::from_secs(1)).unwrap();
        let reasons = [
            Reason::Paused { subject: Subject::Pool(pool.clone()) },
            Reason::Unserved { queue: QueueName::default_queue(), waiting: 1 },
            Reason::PoolUnknown { pool: pool.clone() },
            Reason::NeverFits { pool: pool.clone(), total: 1, needs: 2 },
            Reason::PoolFull { pool: pool.clone(), open: 0, total: 1, needs: 1 },
            Reason::LimitReached { limit: key.clone(), used: 1, max: 1, needs: 1 },
            Reason::RateSpent { limit: key.clone(), rate, next: Timestamp::UNIX_EPOCH },
            Reason::WorkflowMissing { workflow: key },
            Reason::Reserved { pool, open: 1, task: TaskId(1) },
            Reason::OutsideWindow { size: 1 },
            Reason::Busy,
            Reason::BudgetSpent { budget: 1 },
        ];
        assert_eq!(reasons.each_ref().map(Reason::name), Reason::NAMES);
        for reason in reasons {
            let json = serde_json::to_value(&reason).unwrap();
            assert_eq!(json["reason"], reason.name());
        }
    }
}
