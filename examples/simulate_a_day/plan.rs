//! The planner finds the smallest size of each pool with which its tasks would not have waited for too long.
//!
//! It simulates the same day with different sizes, one pool after the other, by bisection: the size of one pool
//! changes, and the others stay as planned so far. After every pool had its turn, another round follows, because a
//! wider pool sends more work to the next one. The plan is settled when a whole round changes nothing. Its sizes then
//! meet the target *together*. With one slot less in any single pool, that pool misses the target. Both were
//! simulated.
//!
//! It assumes the same runs, durations, failures, landings and crashes, which do not depend on sizes, and the same
//! workers and limits. It recognizes waiting that no slot would shorten (limits, workers without a free place): with
//! unlimited slots the pool also misses the target. Such a pool keeps its size.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolSpec, Slots};

use crate::day::Day;
use crate::report::in_seconds;
use crate::trace::Trace;
use crate::trouble::Trouble;
use crate::workload::Workload;

/// After this many rounds the plan no longer improves, because sizes go in circles.
const ROUNDS: usize = 6;

/// The longest that tasks should wait, and the percentage of tasks for which this must hold.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Goal {
    pub(crate) wait_s: f64,
    pub(crate) percentile: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) goal: Goal,
    /// Whether a whole round changed nothing.
    pub(crate) settled: bool,
    /// How many days were simulated for it.
    pub(crate) days: usize,
    pub(crate) pools: Vec<Planned>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Planned {
    pub(crate) name: PoolName,
    pub(crate) slots: Slots,
    /// The size that meets the goal. `None` if no size does.
    pub(crate) size: Option<u32>,
    /// The percentile of waits now, with all planned sizes, and with one slot less here. The last is `None` if a task
    /// needs every slot of it.
    pub(crate) wait_now_s: f64,
    pub(crate) wait_then_s: f64,
    pub(crate) wait_with_one_less_s: Option<f64>,
}

/// A pool's result of one day.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// The percentile of waits, in microseconds.
    wait: i64,
    peak: u32,
}

type Sizes = Vec<Slots>;

struct Planner<'a> {
    workload: &'a Workload,
    seed: u64,
    hours: u32,
    goal: Goal,
    /// The results by sizes, so that a day is simulated only once.
    days: HashMap<Sizes, Vec<Load>>,
}

pub(crate) fn plan(workload: &Workload, seed: u64, hours: u32, goal: Goal) -> Result<Plan, Trouble> {
    let mut planner = Planner { workload, seed, hours, goal, days: HashMap::new() };
    let given: Sizes = workload.pools.iter().map(|pool| pool.slots).collect();
    let (mut sizes, mut met) = (given.clone(), vec![true; given.len()]);
    let mut settled = false;
    for _ in 0..ROUNDS {
        let before = sizes.clone();
        for at in 0..sizes.len() {
            if given[at] == Slots::Unlimited {
                continue;
            }
            let smallest = planner.smallest(&sizes, at)?;
            met[at] = smallest.is_some();
            sizes[at] = smallest.map_or(given[at], Slots::Limited);
        }
        settled = sizes == before;
        if settled {
            break;
        }
    }
    let (now, then) = (planner.day(&given)?, planner.day(&sizes)?);
    let mut pools = Vec::new();
    for (at, pool) in workload.pools.iter().enumerate().filter(|(at, _)| given[*at] != Slots::Unlimited) {
        let size = sizes[at].total().filter(|_| met[at]);
        let one_less = match size {
            Some(size) if size > planner.needs(at) => Some(planner.with(&sizes, at, size - 1)?.wait),
            _ => None,
        };
        pools.push(Planned {
            name: pool.name.clone(),
            slots: pool.slots,
            size,
            wait_now_s: in_seconds(now[at].wait),
            wait_then_s: in_seconds(then[at].wait),
            wait_with_one_less_s: one_less.map(in_seconds),
        });
    }
    Ok(Plan { goal, settled, days: planner.days.len(), pools })
}

impl Planner<'_> {
    /// Returns the smallest size of one pool that meets the goal with the others unchanged. `None` if no size does.
    fn smallest(&mut self, sizes: &Sizes, at: usize) -> Result<Option<u32>, Trouble> {
        let least = self.needs(at);
        // After the first round it is usually the planned size.
        if let Some(size) = sizes[at].total().filter(|size| *size > least) {
            let (planned, one_less) = (self.with(sizes, at, size)?, self.with(sizes, at, size - 1)?);
            if self.meets(planned) && !self.meets(one_less) {
                return Ok(Some(size));
            }
        }
        // With as many slots as were ever in use when unlimited, the day is the same.
        let unlimited = self.day(&replaced(sizes, at, Slots::Unlimited))?[at];
        if !self.meets(unlimited) {
            return Ok(None);
        }
        let (mut enough, mut too_few) = (unlimited.peak.max(least), least - 1);
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            let met = self.with(sizes, at, middle)?;
            if self.meets(met) { enough = middle } else { too_few = middle }
        }
        Ok(Some(enough))
    }

    fn meets(&self, load: Load) -> bool {
        in_seconds(load.wait) <= self.goal.wait_s
    }

    /// Returns the most slots of this pool that a task needs: with fewer it would never run.
    fn needs(&self, at: usize) -> u32 {
        let pool = &self.workload.pools[at].name;
        let tasks = self.workload.workflows.iter().flat_map(|workflow| &workflow.tasks);
        tasks.filter(|task| task.pool == *pool).map(|task| task.pool_slots).max().unwrap_or(1)
    }

    fn with(&mut self, sizes: &Sizes, at: usize, size: u32) -> Result<Load, Trouble> {
        Ok(self.day(&replaced(sizes, at, Slots::Limited(size)))?[at])
    }

    fn day(&mut self, sizes: &Sizes) -> Result<Vec<Load>, Trouble> {
        if let Some(known) = self.days.get(sizes) {
            return Ok(known.clone());
        }
        let mut pools: Vec<PoolSpec> = self.workload.pools.clone();
        pools.iter_mut().zip(sizes).for_each(|(pool, slots)| pool.slots = *slots);
        let trace = Trace::new(self.workload.begin, None)?;
        let day = Day::new(self.workload, &pools, self.seed, self.hours, trace)?.run()?;
        let load = |pool: &PoolSpec| {
            let account = day.ledger.accounts.get(&pool.name);
            account.map_or(Load { wait: 0, peak: 0 }, |account| Load {
                wait: account.percentile(self.goal.percentile),
                peak: u32::try_from(account.peak).unwrap_or(u32::MAX),
            })
        };
        let load: Vec<Load> = pools.iter().map(load).collect();
        self.days.insert(sizes.clone(), load.clone());
        Ok(load)
    }
}

fn replaced(sizes: &Sizes, at: usize, slots: Slots) -> Sizes {
    let mut sizes = sizes.clone();
    sizes[at] = slots;
    sizes
}

/// The planned sizes by pool, in the form of the command line.
impl Plan {
    pub(crate) fn options(&self) -> String {
        let sizes: BTreeMap<&PoolName, u32> =
            self.pools.iter().filter_map(|pool| Some((&pool.name, pool.size?))).collect();
        let options: Vec<String> = sizes.iter().map(|(name, size)| format!("--pool {name}={size}")).collect();
        options.join(" ")
    }
}
