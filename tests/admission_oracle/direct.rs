//! The planner itself, fed from a world.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use stationmaster::TaskId;
use stationmaster::admission::limits::LimitRecord;
use stationmaster::id::LimitKey;
use stationmaster::ops::AdmitRequest;
use stationmaster::pool::{PoolRecord, PoolSpec};
use stationmaster::store::contract::{Candidate, Lane, LaneId, LaneKey, OrderKey, Survey};
use stationmaster::testing::core::{Planned, plan};

use crate::oracle::{Turns, walk};
use crate::world::World;

fn request(budget: usize) -> AdmitRequest {
    AdmitRequest::new("h".try_into().unwrap(), "tick".try_into().unwrap(), budget, Duration::from_secs(60))
}

/// Plans as a tick does, with pages no longer than `longest_page`. Returns the plan and how many candidates it read.
fn planned(world: &World, numbers: &[TaskId], longest_page: usize) -> (Planned, usize) {
    let mut lanes: BTreeMap<(&LaneKey, bool), Vec<OrderKey>> = BTreeMap::new();
    let takes_part = |queue| world.is_served(queue) || world.serve_others.contains(queue);
    for (at, task) in world.waiting.iter().enumerate().filter(|(_, task)| takes_part(&task.lane.queue)) {
        lanes.entry(task.kind()).or_default().push(world.order(at, numbers[at]));
    }
    let mut by_no = HashMap::new();
    let mut rows = Vec::new();
    for (id, ((key, keeps_slots), mut orders)) in (1_i64..).zip(lanes) {
        orders.sort_unstable();
        let id = LaneId(if keeps_slots { -id } else { id });
        rows.push(Lane::new(id, key.clone(), orders.len() as u64).keeps_slots(keeps_slots));
        by_no.insert(id, orders);
    }
    let pools = world.pools.iter().map(|(name, slots)| {
        PoolRecord::new(PoolSpec::new(name.as_str(), *slots).unwrap(), world.used_slots(name))
    });
    let pools: Vec<_> = pools.collect();
    let keys: BTreeSet<&LimitKey> = world.waiting.iter().flat_map(|task| &task.lane.limits).collect();
    let own = |key: &LimitKey| world.limits.iter().find(|spec| !spec.is_family && spec.key == *key).cloned();
    let limits = keys.into_iter();
    let limits = limits.map(|key| LimitRecord::defined(key.clone(), own(key), world.used_limit(key)));
    let mut survey = Survey::default();
    (survey.lanes, survey.pools, survey.limits) = (rows, pools, limits.collect());
    survey.families = world.limits.iter().filter(|spec| spec.is_family).cloned().collect();
    (survey.rates, survey.paused) = (world.owed.clone(), world.paused.clone());
    survey.shares = Turns::new(world).all();
    survey.grants = world.grants;
    survey.clock = world.owed.iter().map(|used| used.at).max();

    let mut order = request(world.budget).policy(world.policy.clone());
    order.serves.clone_from(&world.serves);
    let mut read = 0;
    let plan = plan(&order, world.now, survey, |pages| {
        let mut candidates = Vec::new();
        for page in pages {
            page.limit = page.limit.min(longest_page);
            let after = |order: &&OrderKey| page.after.is_none_or(|after| **order > after);
            let orders = by_no[&page.lane].iter().filter(after).take(page.limit);
            candidates.extend(orders.map(|order| {
                let at = numbers.iter().position(|number| *number == order.id).unwrap();
                let candidate = Candidate::new(page.lane, *order);
                if page.with_ready_at { candidate.ready_at(world.waiting[at].ready_at) } else { candidate }
            }));
        }
        read += candidates.len();
        candidates
    });
    (plan.unwrap(), read)
}

/// Compares the plan with the walk, and what it read with what it admitted.
pub(crate) fn check(world: &World, longest_page: usize) {
    let numbers: Vec<TaskId> = (1..).map(TaskId).take(world.waiting.len()).collect();
    let expected = walk(world, &numbers);
    let (plan, read) = planned(world, &numbers, longest_page);
    let admitted: Vec<usize> = plan.admit.iter().map(|task| task.order.id.0 as usize - 1).collect();
    assert_eq!(admitted, expected.admitted, "{world:?}");
    let left: BTreeMap<(LaneKey, bool), _> = plan
        .refusals
        .into_iter()
        .map(|lane| ((lane.lane, lane.keeps_slots), (lane.tasks, lane.reason)))
        .collect();
    assert_eq!(left, expected.left, "{world:?}");
    let mut rates = plan.rates;
    rates.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(rates, expected.owed, "{world:?}");
    assert_eq!(plan.shares, expected.shares, "{world:?}");

    let lanes = left.len() + admitted.len();
    let foreign: BTreeSet<_> = world.waiting.iter().map(|task| task.kind()).collect();
    let foreign = foreign.into_iter().filter(|(lane, _)| !world.is_served(&lane.queue)).count();
    assert!(
        read <= 3 * admitted.len() + 17 * lanes + foreign,
        "read {read} candidates to admit {}",
        admitted.len()
    );
}

/// However long the lanes of a full pool are, a reservation reads the first task of each, once.
#[test]
fn a_reservation_reads_one_task_of_each_refused_lane() {
    use stationmaster::Timestamp;
    use stationmaster::admission::Policy;
    use stationmaster::pool::Slots;

    let lane = |id: i64, slots| {
        Lane::new(LaneId(id), LaneKey::new("p".try_into().unwrap(), slots, vec![]), 1_000_000)
    };
    let policy = Policy::Reserve { after: Duration::from_micros(5) };
    let lanes = vec![lane(1, 2), lane(2, 3), lane(3, 4)];
    let pool = PoolRecord::new(PoolSpec::new("p", Slots::Limited(9)).unwrap(), 8);
    let (mut read, mut requests) = (0, 0);
    let mut survey = Survey::default();
    (survey.lanes, survey.pools) = (lanes, vec![pool]);
    let plan = plan(&request(512).policy(policy), Timestamp::from_micros(9), survey, |pages| {
        assert!(pages.iter().all(|page| page.limit == 1 && page.with_ready_at));
        let heads = pages.iter().map(|page| {
            let order = OrderKey::new(0, Timestamp::UNIX_EPOCH, None, TaskId(page.lane.0));
            Candidate::new(page.lane, order).ready_at(Timestamp::from_micros(4))
        });
        let heads: Vec<Candidate> = heads.collect();
        read += heads.len();
        requests += 1;
        heads
    });
    assert_eq!((read, requests), (3, 1));
    assert!(plan.unwrap().admit.is_empty());
}
