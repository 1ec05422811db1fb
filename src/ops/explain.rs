//! Explains why a task does not run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::admission::{Lane, LaneId, Need, Paused, Planner, Reason, served_until};
use crate::error::Result;
use crate::id::{LimitKey, PoolName, QueueName, TaskKey};
use crate::store::ReadTx;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// What keeps a task from running. It is computed when asked for and never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explanation {
    /// There is no such task.
    Unknown,
    /// It does not wait for admission and is in this state.
    NotWaiting(TaskState),
    /// It may not start before this instant. If that has passed, one of the next ticks makes it ready.
    NotBefore(Timestamp),
    /// It is refused regardless of its place in the order.
    Refused(Reason),
    /// It fits into what is open now. The next tick admits it, unless earlier tasks in the order use that
    /// capacity first or the tick's policy holds it back.
    Fits,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such task"),
            Self::NotWaiting(state) => write!(f, "it does not wait for admission: it is {state}"),
            Self::NotBefore(due) => write!(f, "not before {due}"),
            Self::Refused(reason) => reason.fmt(f),
            Self::Fits => f.write_str(
                "it fits; the next tick for its queue admits it, unless tasks before it need what is open",
            ),
        }
    }
}

impl Explanation {
    /// Returns the instant at which the explanation changes on its own, at the next tick from then on. Returns `None`
    /// if it changes only with other work.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::Timestamp;
    /// use stationmaster::ops::Explanation;
    ///
    /// let due = Timestamp::from_micros(5);
    /// assert_eq!(Explanation::NotBefore(due).changes_at(), Some(due));
    /// assert_eq!(Explanation::Fits.changes_at(), None);
    /// ```
    pub fn changes_at(&self) -> Option<Timestamp> {
        match self {
            Self::NotBefore(due) => Some(*due),
            Self::Refused(reason) => reason.changes_at(),
            Self::Unknown | Self::NotWaiting(_) | Self::Fits => None,
        }
    }
}

impl ReadTx<'_> {
    /// Returns what keeps each of these tasks from running at this instant.
    ///
    /// A task of a queue that no one serves is refused with that reason, once any admitter has recorded which queues it
    /// serves.
    ///
    /// A call costs at most eight store calls, however many tasks it names. It reads these tasks and the pools,
    /// limits and queues that they need.
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
        let found: Vec<Result<Lane, Explanation>> =
            self.raw().tasks(keys)?.into_iter().map(waits_in).collect();
        let lanes = || found.iter().flatten().map(|lane| &lane.key);
        let pools: BTreeSet<&PoolName> =
            lanes().flat_map(|lane| lane.pools()).map(|(pool, _)| pool).collect();
        let limits: BTreeSet<&LimitKey> = lanes().flat_map(|lane| &lane.limits).collect();
        let (pools, limits): (Vec<_>, Vec<_>) =
            (pools.into_iter().cloned().collect(), limits.into_iter().cloned().collect());
        let pools = by_name(self.raw().pools(&pools)?, |pool| pool.spec.name.clone());
        let (rates, clock) = self.raw().rates(&limits)?;
        let clock = clock.map_or(now, |last| last.max(now));
        let limits = by_name(self.limits(&limits)?, |limit| limit.key.clone());
        let paused = self.raw().paused()?;
        let what_is_paused = Paused::new(&paused);
        let unserved = self.unserved(now, lanes().map(|lane| lane.queue.clone()).collect())?;
        let explained = |waits: Lane| {
            let lane = &waits.key;
            if let Some(subject) = what_is_paused.of(lane) {
                return Explanation::Refused(Reason::Paused { subject });
            }
            if let Some(waiting) = unserved.get(&lane.queue) {
                let reason = Reason::Unserved { queue: lane.queue.clone(), waiting: *waiting };
                return Explanation::Refused(reason);
            }
            let pools: Vec<_> = lane.pools().filter_map(|(name, _)| pools.get(name)).cloned().collect();
            let limits: Vec<_> = lane.limits.iter().filter_map(|key| limits.get(key)).cloned().collect();
            fits(waits, |planner| planner.feed_capacity(&pools, &limits, &rates, clock))
        };
        Ok(found.into_iter().map(|lane| lane.map_or_else(|why| why, explained)).collect())
    }

    /// Returns those of these queues that no one serves, with what waits in each.
    fn unserved(
        &mut self,
        now: Timestamp,
        mut queues: BTreeSet<QueueName>,
    ) -> Result<BTreeMap<QueueName, u64>> {
        let told = if queues.is_empty() { Vec::new() } else { self.raw().serving()? };
        queues.retain(|queue| served_until(&told, queue).is_none_or(|until| until <= now));
        if told.is_empty() || queues.is_empty() {
            return Ok(BTreeMap::new());
        }
        let counted = self.raw().queues()?.into_iter().filter(|queue| queues.contains(&queue.name));
        Ok(counted.map(|queue| (queue.name, queue.waiting)).collect())
    }
}

fn by_name<K: Ord, R>(found: Vec<Option<R>>, name: impl Fn(&R) -> K) -> BTreeMap<K, R> {
    found.into_iter().flatten().map(|record| (name(&record), record)).collect()
}

/// Returns the lane in which a task waits for admission, as if it were alone there, or why it does not wait there.
fn waits_in(task: Option<TaskRecord>) -> Result<Lane, Explanation> {
    let Some(task) = task else { return Err(Explanation::Unknown) };
    match (task.state, task.due) {
        (TaskState::Scheduled | TaskState::UpForRetry, Some(due)) => Err(Explanation::NotBefore(due)),
        (TaskState::Scheduled, None) => {
            let keeps_slots = task.keeps_slots();
            Ok(Lane::new(LaneId(0), task.lane, 1).keeps_slots(keeps_slots))
        }
        (state, _) => Err(Explanation::NotWaiting(state)),
    }
}

/// Runs the planner of a tick as if this task were the only one waiting.
fn fits(lane: Lane, feed: impl FnOnce(&mut Planner)) -> Explanation {
    let mut planner = Planner::new(1, vec![lane]);
    if let Need::Capacity = planner.need() {
        feed(&mut planner);
    }
    match planner.need() {
        Need::Candidates(_) => Explanation::Fits,
        _ => planner
            .finish()
            .refusals
            .pop()
            .map_or(Explanation::Fits, |refused| Explanation::Refused(refused.reason)),
    }
}
