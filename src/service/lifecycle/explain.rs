//! Why does this task not run?

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::admission::{Lane, LaneNo, Need, Planner, Reason};
use crate::error::Result;
use crate::id::TaskKey;
use crate::store::StoreTx;
use crate::task::TaskState;

/// What keeps a task from running, computed at the instant of asking; nothing of it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explanation {
    /// There is no such task.
    Unknown,
    /// It does not wait for admission: it is in this state.
    NotWaiting(TaskState),
    /// It may not start before this instant. If that has passed, one of the next ticks makes it ready.
    NotBefore(DateTime<Utc>),
    /// It is refused, whatever its place in the order.
    Refused(Reason),
    /// It fits into what is open now. The next tick admits it, unless tasks before it in the order take that first, or the
    /// tick's policy holds it back.
    Fits,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such task"),
            Self::NotWaiting(state) => write!(f, "it does not wait for admission: it is {state}"),
            Self::NotBefore(due) => write!(f, "not before {due}"),
            Self::Refused(reason) => reason.fmt(f),
            Self::Fits => f.write_str("it fits; tasks before it in the order go first"),
        }
    }
}

/// Tells what keeps a task from running.
///
/// # Errors
///
/// [`crate::Error::Store`] if the store fails.
///
/// # Examples
///
/// ```
/// use stationmaster::service::lifecycle::{enqueue, explain};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = MemoryStore::new();
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).pool_slots(200);
/// store.write(|tx| enqueue(tx, from_micros(0), std::slice::from_ref(&task)))?;
/// let why = store.read(|tx| explain(tx, &task.key))?;
/// assert_eq!(why.to_string(), "pool default_pool: has 128 slots in all, needs 200");
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn explain(tx: &mut (impl StoreTx + ?Sized), key: &TaskKey) -> Result<Explanation> {
    let Some(task) = tx.tasks(std::slice::from_ref(key))?.into_iter().flatten().next() else {
        return Ok(Explanation::Unknown);
    };
    match (task.state, task.due) {
        (TaskState::Scheduled | TaskState::UpForRetry, Some(due)) => return Ok(Explanation::NotBefore(due)),
        (TaskState::Scheduled, None) => {}
        (state, _) => return Ok(Explanation::NotWaiting(state)),
    }
    let mut planner = Planner::new(1, vec![Lane::new(LaneNo(0), task.lane, 1)]);
    if let Need::Capacity { pools, limits } = planner.need() {
        let pools: Vec<_> = tx.pools(&pools)?.into_iter().flatten().collect();
        let limits: Vec<_> = tx.limits(&limits)?.into_iter().flatten().collect();
        planner.feed_capacity(&pools, &limits);
    }
    Ok(match planner.need() {
        Need::Candidates(_) => Explanation::Fits,
        _ => match planner.finish().deferrals.pop() {
            Some(deferral) => Explanation::Refused(deferral.reason),
            None => Explanation::Fits,
        },
    })
}
