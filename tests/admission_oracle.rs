//! The planner against a naive oracle: a walk over the whole backlog in order.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use stationmaster::TaskNo;
use stationmaster::admission::limits::LimitRecord;
use stationmaster::admission::{Candidate, Lane, LaneKey, LaneNo, Need, OrderKey, Planner, rank};
use stationmaster::id::{LimitKey, PoolName};
use stationmaster::pool::{PoolRecord, PoolSpec, Slots};
use stationmaster::time::from_micros;

/// One ready task.
#[derive(Debug, Clone)]
struct Waiting {
    lane: LaneKey,
    order: OrderKey,
}

#[derive(Debug, Clone)]
struct World {
    pools: Vec<PoolRecord>,
    limits: Vec<LimitRecord>,
    tasks: Vec<Waiting>,
    budget: usize,
}

fn pool_name(n: u8) -> PoolName {
    PoolName::new(format!("p{n}")).unwrap()
}

fn limit_key(n: u8) -> LimitKey {
    LimitKey::new(format!("l{n}")).unwrap()
}

/// Which tasks are admitted, in order, written from the documentation of `stationmaster::admission`.
fn oracle(world: &World) -> Vec<TaskNo> {
    let mut open: HashMap<_, _> =
        world.pools.iter().map(|pool| (pool.spec.name.clone(), pool.open().unwrap_or(i64::MAX))).collect();
    let mut room: HashMap<_, _> =
        world.limits.iter().map(|limit| (limit.key.clone(), limit.open().unwrap_or(i64::MAX))).collect();
    let mut backlog = world.tasks.clone();
    backlog.sort_by_key(|task| task.order);
    let mut admitted = Vec::new();
    for task in backlog {
        let needs = i64::from(task.lane.slots);
        let fits = open.get(&task.lane.pool).is_some_and(|open| *open >= needs)
            && task.lane.limits.iter().all(|key| room.get(key).is_none_or(|room| *room >= 1));
        if admitted.len() < world.budget && fits {
            *open.get_mut(&task.lane.pool).unwrap() -= needs;
            for key in &task.lane.limits {
                if let Some(room) = room.get_mut(key) {
                    *room -= 1;
                }
            }
            admitted.push(task.order.no);
        }
    }
    admitted
}

/// Drives the planner as a service does, with pages no longer than `longest_page`. Answers the plan and how many
/// candidates it read.
fn plan(world: &World, longest_page: usize) -> (stationmaster::admission::Plan, usize) {
    let mut lanes: BTreeMap<LaneKey, Vec<OrderKey>> = BTreeMap::new();
    for task in &world.tasks {
        lanes.entry(task.lane.clone()).or_default().push(task.order);
    }
    let mut by_no = HashMap::new();
    let mut rows = Vec::new();
    for (no, (key, mut orders)) in (1_i64..).zip(lanes) {
        orders.sort_unstable();
        rows.push(Lane::new(LaneNo(no), key, orders.len() as u64));
        by_no.insert(LaneNo(no), orders);
    }
    let mut planner = Planner::new(world.budget, rows);
    let mut read = 0;
    loop {
        match planner.need() {
            Need::Capacity { .. } => planner.feed_capacity(&world.pools, &world.limits),
            Need::Candidates(pages) => {
                let mut shorter = pages.clone();
                let mut candidates = Vec::new();
                for page in &mut shorter {
                    page.limit = page.limit.min(longest_page);
                    let after = |order: &&OrderKey| page.after.is_none_or(|after| **order > after);
                    let orders = by_no[&page.lane].iter().filter(after).take(page.limit);
                    candidates.extend(orders.map(|order| Candidate::new(page.lane, *order)));
                }
                read += candidates.len();
                planner.feed_candidates(&shorter, &candidates);
            }
            Need::Nothing => return (planner.finish(), read),
            other => panic!("the planner asked for {other:?}"),
        }
    }
}

fn check(world: &World, longest_page: usize) {
    let (plan, read) = plan(world, longest_page);
    let admitted: Vec<TaskNo> = plan.admit.iter().map(|candidate| candidate.order.no).collect();
    assert_eq!(admitted, oracle(world), "{world:?}");

    let by_no: HashMap<_, _> = world.tasks.iter().map(|task| (task.order.no, &task.lane)).collect();
    let mut slots: BTreeMap<PoolName, u64> = BTreeMap::new();
    let mut limits: BTreeMap<LimitKey, u64> = BTreeMap::new();
    let mut left: BTreeMap<&LaneKey, u64> = BTreeMap::new();
    for task in &world.tasks {
        *left.entry(&task.lane).or_default() += 1;
    }
    for no in &admitted {
        let lane = by_no[no];
        *slots.entry(lane.pool.clone()).or_default() += u64::from(lane.slots);
        *left.get_mut(lane).unwrap() -= 1;
        for key in &lane.limits {
            *limits.entry(key.clone()).or_default() += 1;
        }
    }
    assert_eq!(plan.pools, slots.into_iter().collect::<Vec<_>>());
    assert_eq!(plan.limits, limits.into_iter().collect::<Vec<_>>());
    let deferred: BTreeMap<&LaneKey, u64> =
        plan.deferrals.iter().map(|deferral| (&deferral.lane, deferral.tasks)).collect();
    left.retain(|_, tasks| *tasks > 0);
    assert_eq!(deferred, left, "each task left waiting has a reason");
    let lanes = left.len() + admitted.len();
    assert!(read <= 3 * admitted.len() + 17 * lanes, "read {read} candidates to admit {}", admitted.len());
}

fn task_strategy() -> impl Strategy<Value = (u8, u32, Vec<u8>, i32, i64, Option<u32>)> {
    (
        0_u8..4,
        1_u32..4,
        proptest::collection::vec(0_u8..3, 0..3),
        -2_i32..3,
        0_i64..3,
        proptest::option::of(0_u32..3),
    )
}

prop_compose! {
    fn worlds(most_tasks: usize)(
        pools in proptest::collection::vec((proptest::option::of(0_u32..12), 0_i64..6), 0..4),
        limits in proptest::collection::vec((proptest::option::of(0_u32..6), 0_i64..4), 0..3),
        tasks in proptest::collection::vec(task_strategy(), 0..most_tasks),
        budget in prop_oneof![Just(0_usize), 1_usize..8, Just(1000)],
    ) -> World {
        let pools = (0..).zip(pools).map(|(n, (slots, used))| {
            let slots = slots.map_or(Slots::Unlimited, Slots::Limited);
            PoolRecord::new(PoolSpec::new(pool_name(n), slots).unwrap(), used)
        });
        let limits = (0..).zip(limits).map(|(n, (max, used))| LimitRecord::new(limit_key(n), max, used));
        let tasks = (1..).zip(tasks).map(|(no, (pool, slots, limits, priority, date, map_index))| Waiting {
            lane: LaneKey::new(pool_name(pool), slots, limits.into_iter().map(limit_key).collect()),
            order: OrderKey::new(rank(priority), from_micros(date), map_index, TaskNo(no)),
        });
        World { pools: pools.collect(), limits: limits.collect(), tasks: tasks.collect(), budget }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn equals_the_walk_over_the_whole_backlog(world in worlds(40), longest_page in 1_usize..40) {
        check(&world, longest_page);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn equals_it_in_larger_worlds(world in worlds(400)) {
        check(&world, usize::MAX);
    }
}
