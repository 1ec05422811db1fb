//! The number of tasks ahead of a task.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::admit::apply_families;
use crate::admission::limits::LimitRecord;
use crate::admission::{Candidate, Lane, LaneId, LanePage, Need, OrderKey, Planner, Policy};
use crate::error::Result;
use crate::id::{PoolName, TaskKey};
use crate::lease::TaskId;
use crate::pool::{PoolRecord, PoolSpec, Slots};
use crate::store::ReadTx;
use crate::store::contract::{StoreTx, SurveyQuery};
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// The number of ready tasks ahead of a task in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Position {
    /// This many, at most the number that the caller gave. 0 means that the task is the first in its pool.
    Before(u64),
    /// More than this many, which is the number that the caller gave.
    MoreThan(u64),
    /// It is not ready: it waits for an instant, has been admitted or has ended. An overdue task is ready
    /// after one of the next ticks.
    NotReady,
    /// There is no such task.
    Unknown,
}

impl ReadTx<'_> {
    /// Returns how many ready tasks of its pool precede each of these tasks in admission order. Counts up to
    /// `most` of them.
    ///
    /// Tasks of all queues count, whether or not they fit: a tick may admit a task ahead of an earlier one
    /// that does not fit. Overdue tasks that no tick has made ready do not count. Shares alternate as they
    /// would in a tick that begins now and admits all these tasks.
    ///
    /// A call makes three store calls, however many keys it names. If the first tasks of a pool are in a few
    /// of its many lanes, it makes up to about log2 of the number of lanes more. It reads the named tasks and
    /// the lanes that have ready tasks. For each pool it usually reads at most `3 * most` tasks plus 17 per
    /// lane, and never more than `most + 1` per lane. The number of waiting tasks does not matter. A display
    /// needs no more than 100.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::ops::Position;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let keys = ["a", "b", "c", "ghost"].map(|task| TaskKey::new("prod", "nightly", "r1", task).unwrap());
    /// let tasks: Vec<NewTask> = keys[..3].iter().cloned().map(NewTask::new).collect();
    /// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks))?;
    ///
    /// let positions = store.read(|tx| tx.positions(&keys, 1))?;
    /// assert_eq!(positions, [Position::Before(0), Position::Before(1), Position::MoreThan(1), Position::Unknown]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn positions(&mut self, keys: &[TaskKey], most: u64) -> Result<Vec<Position>> {
        let store = self.raw();
        let tasks = store.tasks(keys)?;
        let ready = tasks.iter().flatten().filter(|task| task.is_ready());
        let pools: BTreeSet<&PoolName> = ready.map(|task| &task.lane.pool).collect();
        let first = first_of_pools(store, &pools, most)?;
        let position = |task: &Option<TaskRecord>| {
            let Some(task) = task else { return Position::Unknown };
            let Some(first) = first.get(&task.lane.pool).filter(|_| task.is_ready()) else {
                return Position::NotReady;
            };
            match first.get(&task.order()) {
                Some(before) => Position::Before(*before),
                // All ready tasks of the pool were read, so this one has been admitted meanwhile.
                None if first.len() as u64 <= most => Position::NotReady,
                None => Position::MoreThan(most),
            }
        };
        Ok(tasks.iter().map(position).collect())
    }

    /// Returns the first ready tasks of a pool in admission order, at most `most`: those that
    /// [`Self::positions`] counts before the others.
    ///
    /// A call costs as much as one of [`Self::positions`] with this `most`.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::id::PoolName;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let task = |name, priority| {
    ///     NewTask::new(TaskKey::new("prod", "nightly", "r1", name).unwrap()).priority(priority)
    /// };
    /// let tasks = [task("a", 0), task("b", 9), task("c", 5)];
    /// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks))?;
    ///
    /// let first = store.read(|tx| tx.first_ready(&PoolName::default_pool(), 2))?;
    /// let names: Vec<&str> = first.iter().map(|task| task.key.task.as_str()).collect();
    /// assert_eq!(names, ["b", "c"]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn first_ready(&mut self, pool: &PoolName, most: u64) -> Result<Vec<TaskRecord>> {
        let Some(before_last) = most.checked_sub(1) else { return Ok(Vec::new()) };
        let store = self.raw();
        let first = first_of_pools(store, &BTreeSet::from([pool]), before_last)?;
        let mut ids: Vec<(u64, TaskId)> =
            first.into_values().flatten().map(|(order, before)| (before, order.id)).collect();
        ids.sort_unstable();
        let ids: Vec<TaskId> = ids.into_iter().map(|(_, id)| id).collect();
        let tasks = if ids.is_empty() { Vec::new() } else { store.tasks_by_id(&ids)? };
        Ok(tasks.into_iter().flatten().collect())
    }
}

/// Returns the first `most + 1` ready tasks of each of these pools, each with the number of tasks before it.
fn first_of_pools(
    store: &mut dyn StoreTx,
    pools: &BTreeSet<&PoolName>,
    most: u64,
) -> Result<BTreeMap<PoolName, HashMap<OrderKey, u64>>> {
    if pools.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut lanes: BTreeMap<PoolName, Vec<Lane>> =
        pools.iter().map(|pool| (PoolName::clone(pool), Vec::new())).collect();
    let mut survey = store.survey(&SurveyQuery::new())?;
    apply_families(&mut survey, &Policy::Backfill)?;
    // Only the weights of limits matter here.
    let weighed = survey.limits.into_iter().filter(|limit| limit.weight.is_some());
    let weights: Vec<LimitRecord> =
        weighed.map(|limit| LimitRecord { max: None, rate: None, ..limit }).collect();
    for mut lane in survey.lanes {
        // A position counts every earlier task, whether or not it fits.
        if !lane.key.also.is_empty() {
            Arc::make_mut(&mut lane.key).also.clear();
        }
        if let Some(lanes) = lanes.get_mut(&lane.key.pool) {
            lanes.push(lane);
        }
    }
    // A tick that admits everything it considers reads exactly these tasks, in this order.
    let budget = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    let mut by_lane: HashMap<LaneId, usize> = HashMap::new();
    let mut walks: Vec<(PoolName, Planner)> = Vec::new();
    for (pool, lanes) in lanes {
        by_lane.extend(lanes.iter().map(|lane| (lane.id, walks.len())));
        let spec = PoolSpec { name: pool.clone(), slots: Slots::Unlimited, ..PoolSpec::default_pool() };
        let mut walk = Planner::new(budget, lanes).shares(&survey.shares, survey.grants);
        // The planner needs the capacity once, before anything else.
        if let Need::Capacity = walk.need() {
            walk.feed_capacity(&[PoolRecord::new(spec, 0)], &weights, &[], Timestamp::MIN);
        }
        walks.push((pool, walk));
    }
    loop {
        let asked: Vec<Vec<LanePage>> = walks.iter_mut().map(|(_, walk)| asks_for(walk)).collect();
        let pages = asked.concat();
        if pages.is_empty() {
            break;
        }
        // One call for all pools.
        let mut found: Vec<Vec<Candidate>> = vec![Vec::new(); walks.len()];
        for candidate in store.candidates(&pages)? {
            if let Some(found) = by_lane.get(&candidate.lane).and_then(|at| found.get_mut(*at)) {
                found.push(candidate);
            }
        }
        for (((_, walk), pages), found) in walks.iter_mut().zip(&asked).zip(&found) {
            walk.feed_candidates(pages, found);
        }
    }
    let orders = |mut walk: Planner| {
        let admit = walk.finish().admit.into_iter().map(|candidate| candidate.order);
        admit.zip(0..).collect()
    };
    Ok(walks.into_iter().map(|(pool, walk)| (pool, orders(walk))).collect())
}

fn asks_for(walk: &mut Planner) -> Vec<LanePage> {
    match walk.need() {
        Need::Candidates(pages) => pages,
        Need::Capacity | Need::Lanes { .. } | Need::Nothing => Vec::new(),
    }
}
