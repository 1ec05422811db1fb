//! The rounds of [`AirflowWindow`].

use std::collections::BTreeSet;

use super::limits::Scope;
use super::planner::LaneWork;
use super::policy::AirflowWindow;
use super::tick_capacity::{LimitWork, PoolWork};
use crate::id::LimitKey;
use crate::pool::{PoolRecord, Slots};

/// The position of a tick in its rounds.
///
/// A round is followed by another only if it admitted nothing. Each task that it considered is then excluded
/// by the reason of its refusal. So the next round considers the tasks that follow, and the merge of the
/// lanes continues where it stopped.
#[derive(Debug)]
pub(super) struct Window {
    /// The number of tasks that a round considers.
    size: usize,
    /// The round, from 1. What is excluded before the first round has 0.
    round: u32,
    /// The number of tasks that this round has considered.
    seen: usize,
    /// Whether this round excluded something that was not excluded before.
    learned: bool,
    missing: BTreeSet<LimitKey>,
    /// The missing workflows that were encountered.
    pub(super) met: BTreeSet<LimitKey>,
}

impl Window {
    pub(super) fn new(policy: &AirflowWindow) -> Self {
        Self {
            size: policy.max_tis,
            round: 1,
            seen: 0,
            learned: false,
            missing: policy.missing.iter().cloned().collect(),
            met: BTreeSet::new(),
        }
    }

    /// Limits the size of the window to the open slots of all pools.
    pub(super) fn fit(&mut self, pools: &[PoolRecord]) {
        let mut sum = 0_u64;
        for pool in pools {
            match pool.open() {
                Some(open) => sum = sum.saturating_add(u64::try_from(open).unwrap_or(0)),
                None => return,
            }
        }
        self.size = self.size.min(usize::try_from(sum).unwrap_or(usize::MAX));
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns how many more tasks this round may consider.
    pub(super) fn left(&self) -> usize {
        self.size - self.seen
    }

    /// Moves on to the next round after a full window. Returns false if there is no next round.
    pub(super) fn next_round(&mut self, admitted: usize) -> bool {
        // Airflow queries its database again only if a full window yielded nothing to run and found something
        // to exclude. Otherwise the same query would return the same rows.
        if self.size == 0 || admitted > 0 || !self.learned {
            return false;
        }
        (self.round, self.seen, self.learned) = (self.round.saturating_add(1), 0, false);
        true
    }

    pub(super) fn is_excluded(&self, lane: &LaneWork, pools: &[PoolWork], limits: &[LimitWork]) -> bool {
        lane.main_pool().is_some_and(|pool| pools[pool].excluded.holds_in(self.round))
            || lane.excluded.holds_in(self.round)
            || lane.limits.iter().any(|(limit, _)| limits[*limit].excluded.holds_in(self.round))
    }

    /// Excludes the pools without open slots from all rounds.
    pub(super) fn exclude_full(pools: &mut [PoolWork]) {
        for pool in pools.iter_mut().filter(|pool| pool.open().is_some_and(|open| open <= 0)) {
            pool.excluded.put(0);
        }
    }

    /// Considers the first task of a lane that is not excluded. Returns true if the task is admitted.
    /// Otherwise excludes whatever prevented it.
    pub(super) fn look(
        &mut self,
        lane: &mut LaneWork,
        pools: &mut [PoolWork],
        limits: &mut [LimitWork],
        budget_left: usize,
    ) -> bool {
        // These checks follow Airflow's order: the pool, the task's slots of it, the workflow, the task, the
        // task in the run. The order decides what is excluded, and therefore which tasks the next round
        // considers.
        self.seen += 1;
        let Some(pool) = lane.main_pool() else { return true };
        let (pool, needs) = (&mut pools[pool], i64::from(lane.lane.key.slots));
        let learned = if pool.slots.is_none() || pool.open().is_some_and(|open| open <= 0) {
            pool.excluded.put(self.round)
        } else if pool.slots.and_then(Slots::total).is_some_and(|total| needs > i64::from(total))
            || pool.open().is_some_and(|open| needs > open)
        {
            exclude_task(lane, limits, self.round)
        } else {
            let workflow = key_of(lane, limits, Scope::Workflow);
            if let Some(at) = workflow.filter(|at| limits[*at].is_reached(1)) {
                limits[at].excluded.put(self.round)
            } else if let Some(at) = workflow.filter(|at| self.missing.contains(&limits[*at].key)) {
                self.met.insert(limits[at].key.clone());
                limits[at].excluded.put(self.round);
                false
            } else {
                // The key of a task sorts before that of the task in a run, which is the order of the checks.
                let reached = lane.keys().find(|at| limits[*at].is_reached(1));
                match reached {
                    Some(at) => limits[at].excluded.put(self.round),
                    None if budget_left == 0 => exclude_task(lane, limits, self.round),
                    None => return true,
                }
            }
        };
        self.learned |= learned;
        false
    }
}

/// Returns the key with this scope that the tasks of a lane carry.
fn key_of(lane: &LaneWork, limits: &[LimitWork], scope: Scope) -> Option<usize> {
    lane.keys().find(|at| Scope::of(&limits[*at].key) == Some(scope))
}

/// Excludes all instances of a task: everything that carries its key, or the lane if its tasks carry none.
fn exclude_task(lane: &mut LaneWork, limits: &mut [LimitWork], round: u32) -> bool {
    match key_of(lane, limits, Scope::Task) {
        Some(at) => limits[at].excluded.put(round),
        None => lane.excluded.put(round),
    }
}
