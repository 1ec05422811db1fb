//! The naive oracle: a walk over the whole backlog, written from `docs/admission.md` and nothing else.

use std::collections::{BTreeMap, HashMap, HashSet};

use stationmaster::TaskId;
use stationmaster::admission::{Policy, Reason};
use stationmaster::id::{LimitKey, PoolName};
use stationmaster::pool::Slots;
use stationmaster::store::contract::LaneKey;

use crate::world::World;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    /// The admitted tasks, by their place in `World::waiting`, in order.
    pub(crate) admitted: Vec<usize>,
    /// How many tasks of each lane are left, and why.
    pub(crate) left: BTreeMap<LaneKey, (u64, Reason)>,
}

struct Walk<'a> {
    world: &'a World,
    open: HashMap<&'a PoolName, Option<i64>>,
    used: HashMap<&'a LimitKey, i64>,
    reserved: HashMap<&'a PoolName, TaskId>,
    /// Slots that are kept for tasks that somebody else is to admit, and the first of these.
    kept: HashMap<&'a PoolName, (i64, TaskId)>,
}

/// What the tick must answer, where the waiting task at place `n` has the number `numbers[n]`.
pub(crate) fn walk(world: &World, numbers: &[TaskId]) -> Expected {
    let open = world.pools.iter().map(|(name, slots)| (name, slots.open(world.used_slots(name))));
    let used = world.limits.iter().map(|(key, _)| (key, world.used_limit(key)));
    let mut walk = Walk {
        world,
        open: open.collect(),
        used: used.collect(),
        reserved: HashMap::new(),
        kept: HashMap::new(),
    };
    let mut order: Vec<usize> = (0..world.waiting.len()).collect();
    order.sort_by_key(|at| world.order(*at, numbers[*at]));

    let mut admitted = Vec::new();
    let mut refused: HashSet<&LaneKey> = HashSet::new();
    for at in &order {
        if admitted.len() >= world.budget {
            break;
        }
        let lane = &world.waiting[*at].lane;
        if !world.is_served(&lane.queue) {
            // Of a lane that somebody else serves the first task alone is looked at.
            if world.serve_others.contains(&lane.queue) && refused.insert(lane) {
                match walk.refusal(lane) {
                    Some(reason) => walk.reserve(*at, numbers[*at], &reason),
                    None => walk.keep(*at, numbers[*at]),
                }
            }
            continue;
        }
        match walk.refusal(lane) {
            // Nor is any of those behind it that need the same.
            None if walk.passed_over(lane).is_some() => drop(refused.insert(lane)),
            None => {
                walk.take(lane);
                admitted.push(*at);
            }
            Some(reason) => {
                if refused.insert(lane) {
                    walk.reserve(*at, numbers[*at], &reason);
                }
            }
        }
    }

    let mut left: BTreeMap<LaneKey, (u64, Reason)> = BTreeMap::new();
    for at in order.iter().filter(|at| !admitted.contains(at)) {
        let lane = &world.waiting[*at].lane;
        if !world.is_served(&lane.queue) {
            continue;
        }
        left.entry(lane.clone()).or_insert_with(|| (0, walk.reason(lane))).0 += 1;
    }
    Expected { admitted, left }
}

impl<'a> Walk<'a> {
    fn take(&mut self, lane: &'a LaneKey) {
        if let Some(Some(open)) = self.open.get_mut(&lane.pool) {
            *open -= i64::from(lane.slots);
        }
        for key in &lane.limits {
            if let Some(used) = self.used.get_mut(key) {
                *used += 1;
            }
        }
    }

    fn reserve(&mut self, at: usize, id: TaskId, reason: &Reason) {
        let task = &self.world.waiting[at];
        let only_its_pool = matches!(reason, Reason::PoolFull { .. }) && self.limit(&task.lane).is_none();
        if only_its_pool && self.has_waited(at) {
            self.reserved.entry(&task.lane.pool).or_insert(id);
        }
    }

    /// Its slots are not for others in this walk, unless they are for somebody already.
    fn keep(&mut self, at: usize, id: TaskId) {
        let lane = &self.world.waiting[at].lane;
        if self.has_waited(at) && self.passed_over(lane).is_none() {
            self.kept.entry(&lane.pool).or_insert((0, id)).0 += i64::from(lane.slots);
        }
    }

    fn has_waited(&self, at: usize) -> bool {
        let Policy::Reserve { after } = self.world.policy else { return false };
        self.world.now.saturating_duration_since(self.world.waiting[at].ready_at) >= after
    }

    /// For whom the slots are that it would take.
    fn passed_over(&self, lane: &LaneKey) -> Option<TaskId> {
        let open = self.open.get(&lane.pool).copied().flatten()?;
        let kept = self.kept.get(&lane.pool).filter(|(slots, _)| i64::from(lane.slots) > open - slots);
        self.reserved.get(&lane.pool).copied().or(kept.map(|(_, id)| *id))
    }

    /// Pool unknown, never fits, pool full, limit reached: the first that holds.
    fn refusal(&self, lane: &LaneKey) -> Option<Reason> {
        self.pool(lane).or_else(|| self.limit(lane))
    }

    fn pool(&self, lane: &LaneKey) -> Option<Reason> {
        let (pool, needs) = (lane.pool.clone(), lane.slots);
        let Some((_, slots)) = self.world.pools.iter().find(|(name, _)| *name == pool) else {
            return Some(Reason::PoolUnknown { pool });
        };
        let Slots::Limited(total) = *slots else { return None };
        if needs > total {
            return Some(Reason::NeverFits { pool, total, needs });
        }
        let open = self.open[&pool].unwrap();
        (i64::from(needs) > open).then_some(Reason::PoolFull { pool, open, total, needs })
    }

    /// The first of several, in the order of the keys.
    fn limit(&self, lane: &LaneKey) -> Option<Reason> {
        let mut limits: Vec<_> = self.world.limits.iter().collect();
        limits.sort_unstable();
        let (key, max) = limits
            .into_iter()
            .find(|(key, max)| lane.limits.contains(key) && self.used[key] >= i64::from(*max))?;
        Some(Reason::LimitReached { limit: key.clone(), used: self.used[key], max: *max })
    }

    /// Why tasks of a lane are left, told by what the walk left open.
    fn reason(&self, lane: &LaneKey) -> Reason {
        self.refusal(lane).unwrap_or_else(|| match self.passed_over(lane) {
            Some(task) => {
                Reason::Reserved { pool: lane.pool.clone(), open: self.open[&lane.pool].unwrap(), task }
            }
            None => Reason::BudgetSpent { budget: self.world.budget },
        })
    }
}
