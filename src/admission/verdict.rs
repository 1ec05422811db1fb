//! Why a task was not admitted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::lane::LaneKey;
use crate::id::{LimitKey, PoolName};

/// Why a task was not admitted. The first that holds, in the order they stand here.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::Reason;
/// let reason = Reason::PoolFull { pool: "etl".try_into()?, open: 0, total: 16, needs: 2 };
/// assert_eq!(reason.to_string(), "pool etl: 0 open of 16, needs 2");
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// No such pool. The task waits until the pool is created.
    PoolUnknown {
        /// The pool it names.
        pool: PoolName,
    },
    /// The pool is smaller than what the task needs. It waits until the pool is enlarged.
    NeverFits {
        /// The pool.
        pool: PoolName,
        /// All its slots.
        total: u32,
        /// Slots the task needs.
        needs: u32,
    },
    /// The pool has too few open slots.
    PoolFull {
        /// The pool.
        pool: PoolName,
        /// Open slots; negative after a busy pool was shrunk.
        open: i64,
        /// All its slots.
        total: u32,
        /// Slots the task needs.
        needs: u32,
    },
    /// A limit is reached.
    LimitReached {
        /// The limit: the first in byte order if several are reached.
        limit: LimitKey,
        /// Tasks that count against it.
        used: i64,
        /// The most it lets in.
        max: u32,
    },
    /// The tick admitted as many tasks as it was allowed to.
    BudgetSpent {
        /// How many that is.
        budget: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolUnknown { pool } => write!(f, "pool {pool}: does not exist"),
            Self::NeverFits { pool, total, needs } => {
                write!(f, "pool {pool}: has {total} slots in all, needs {needs}")
            }
            Self::PoolFull { pool, open, total, needs } => {
                write!(f, "pool {pool}: {open} open of {total}, needs {needs}")
            }
            Self::LimitReached { limit, used, max } => write!(f, "limit {limit}: {used} of {max}"),
            Self::BudgetSpent { budget } => write!(f, "tick: all {budget} admissions used"),
        }
    }
}

/// Ready tasks of one lane that a tick did not admit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Deferral {
    /// What they need.
    pub lane: LaneKey,
    /// How many they are.
    pub tasks: u64,
    /// Why the first of them was not admitted.
    pub reason: Reason,
}

impl Deferral {
    pub(super) fn new(lane: LaneKey, tasks: u64, reason: Reason) -> Self {
        Self { lane, tasks, reason }
    }
}
