//! Explains why a task does not run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::admission::{Lane, LaneId, Planner, Reason, served_until};
use crate::error::Result;
use crate::id::{LimitKey, PoolName, QueueName, TaskKey};
use crate::store::ReadTx;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// What keeps a task from running. It is computed on demand and never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explanation {
    /// There is no such task.
    Unknown,
    /// It is in this state, so it does not wait for admission.
    NotWaiting(TaskState),
    /// It may not start yet.
    NotBefore {
        /// When it may start. If this has passed, one of the next ticks makes it ready.
        due: Timestamp,
        /// What would refuse it if it were ready now.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Reason>,
    },
    /// It would be refused even if it were first in the admission order.
    Refused {
        /// The reason that a tick gives.
        #[serde(flatten)]
        reason: Reason,
        /// What else would refuse it, in the order of [`Reason`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Reason>,
    },
    /// It fits into the capacity that is open now. The next tick that serves its queue admits it, unless
    /// earlier tasks in the order use up that capacity or the tick's budget, or the policy holds it back.
    Fits,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let also = match self {
            Self::Unknown => return f.write_str("there is no such task"),
            Self::NotWaiting(state) => return write!(f, "it is {state}, so it does not wait for admission"),
            Self::Fits => {
                return f.write_str(
                    "it fits: the next tick that serves its queue admits it, unless tasks before it take what is open",
                );
            }
            Self::NotBefore { due, also } => write!(f, "not before {due}").map(|()| also)?,
            Self::Refused { reason, also } => reason.fmt(f).map(|()| also)?,
        };
        also.iter().try_for_each(|reason| write!(f, "; also {reason}"))
    }
}

impl Explanation {
    /// Returns every reason why the task is refused now, starting with the one that a tick gives.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::ops::Explanation;
    /// assert_eq!(Explanation::Fits.reasons().count(), 0);
    /// ```
    pub fn reasons(&self) -> impl Iterator<Item = &Reason> {
        let (first, also) = match self {
            Self::Refused { reason, also } => (Some(reason), also.as_slice()),
            Self::NotBefore { also, .. } => (None, also.as_slice()),
            Self::Unknown | Self::NotWaiting(_) | Self::Fits => (None, [].as_slice()),
        };
        first.into_iter().chain(also)
    }

    /// Returns the earliest instant from which the next tick changes the explanation, without any other work.
    /// Returns `None` if only other work can change it.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::Timestamp;
    /// use stationmaster::ops::Explanation;
    ///
    /// let due = Timestamp::from_micros(5);
    /// assert_eq!(Explanation::NotBefore { due, also: vec![] }.changes_at(), Some(due));
    /// assert_eq!(Explanation::Fits.changes_at(), None);
    /// ```
    pub fn changes_at(&self) -> Option<Timestamp> {
        let due = match self {
            Self::NotBefore { due, .. } => Some(*due),
            _ => None,
        };
        self.reasons().filter_map(Reason::changes_at).chain(due).min()
    }
}

impl ReadTx<'_> {
    /// Returns everything that keeps each of these tasks from running at this instant.
    ///
    /// A task in a queue that is not served is refused for that reason, provided that some admitter has
    /// recorded which queues it serves.
    ///
    /// A call makes at most nine store calls, however many tasks it names. It reads these tasks and the
    /// pools, limits and queues that they need.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).pool_slots(200);
    /// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)))?;
    /// let why = store.read(|tx| tx.explain(Timestamp::UNIX_EPOCH, &[task.key.clone()]))?;
    /// assert_eq!(why[0].to_string(), "pool default_pool: has 128 slots in all, needs 200");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn explain(&mut self, now: impl Into<Timestamp>, keys: &[TaskKey]) -> Result<Vec<Explanation>> {
        let now = now.into();
        let tasks = self.raw().tasks(keys)?;
        let waiting = tasks.iter().flatten().filter(|task| waits(task));
        let lane = |task: &TaskRecord| {
            Lane::new(LaneId(0), Arc::clone(&task.lane), 1).keeps_slots(task.keeps_slots())
        };
        let lanes: Vec<Lane> = waiting.map(lane).collect();
        let pools: BTreeSet<&PoolName> =
            lanes.iter().flat_map(|lane| lane.key.pools()).map(|(pool, _)| pool).collect();
        let limits: BTreeSet<&LimitKey> = lanes.iter().flat_map(|lane| &lane.key.limits).collect();
        let (pools, limits): (Vec<_>, Vec<_>) =
            (pools.into_iter().cloned().collect(), limits.into_iter().cloned().collect());
        let pools: Vec<_> = self.raw().pools(&pools)?.into_iter().flatten().collect();
        let (rates, clock) = self.raw().rates(&limits)?;
        let clock = clock.map_or(now, |last| last.max(now));
        let limits: Vec<_> = self.limits_without_tokens(&limits)?.into_iter().flatten().collect();
        let paused = self.raw().paused()?;
        let unserved = self.unserved(now, lanes.iter().map(|lane| lane.key.queue.clone()).collect())?;
        // Each lane holds a single task, as if no other task were waiting.
        let mut planner = Planner::new(1, lanes).paused(&paused).unserved(&unserved);
        planner.feed_capacity(&pools, &limits, &rates, clock);
        let mut lane = 0..;
        let explained = |task: Option<TaskRecord>| match task {
            None => Explanation::Unknown,
            Some(task) if !waits(&task) => Explanation::NotWaiting(task.state),
            Some(task) => explanation(task.due, lane.next().into_iter().flat_map(|at| planner.obstacles(at))),
        };
        Ok(tasks.into_iter().map(explained).collect())
    }

    /// Returns which of these queues are not served, with the number of tasks waiting in each.
    fn unserved(
        &mut self,
        now: Timestamp,
        mut queues: BTreeSet<QueueName>,
    ) -> Result<BTreeMap<QueueName, u64>> {
        let serving = if queues.is_empty() { Vec::new() } else { self.raw().serving()? };
        queues.retain(|queue| served_until(&serving, queue).is_none_or(|until| until <= now));
        if serving.is_empty() || queues.is_empty() {
            return Ok(BTreeMap::new());
        }
        let counted = self.raw().queues()?.into_iter().filter(|queue| queues.contains(&queue.name));
        Ok(counted.map(|queue| (queue.name, queue.waiting)).collect())
    }
}

/// Returns true for a task that waits for admission, or for the instant at which that begins.
fn waits(task: &TaskRecord) -> bool {
    match task.state {
        TaskState::Scheduled => true,
        TaskState::UpForRetry => task.due.is_some(),
        _ => false,
    }
}

fn explanation(due: Option<Timestamp>, mut obstacles: impl Iterator<Item = Reason>) -> Explanation {
    if let Some(due) = due {
        return Explanation::NotBefore { due, also: obstacles.collect() };
    }
    match obstacles.next() {
        Some(reason) => Explanation::Refused { reason, also: obstacles.collect() },
        None => Explanation::Fits,
    }
}
