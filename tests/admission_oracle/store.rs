//! A world in a store: set up by the verbs of a host, ticked by `admit`.

use std::collections::BTreeMap;
use std::time::Duration;

use stationmaster::admission::Policy;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::ops::AdmitRequest;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::contract::{GrantBatch, LaneKey};
use stationmaster::store::{Inserted, Store, Tx};
use stationmaster::testing::raw;
use stationmaster::{NewTask, Result, TaskId, TaskKey};

use crate::oracle::{Expected, walk};
use crate::world::World;

fn task(name: String, lane: &LaneKey) -> NewTask {
    let key = TaskKey::new("n", "w", "r", name).unwrap();
    let task = NewTask::new(key).pool(lane.pool.clone()).pool_slots(lane.slots);
    lane.limits.iter().cloned().fold(task, NewTask::limit)
}

fn order(name: &str, budget: usize) -> AdmitRequest {
    AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), budget, Duration::from_secs(60))
}

/// Grants what is to hold leases while the pools are unlimited and no limit is defined, then gives them their sizes.
fn set_up(tx: &mut Tx<'_>, world: &World) -> Result<Vec<TaskId>> {
    for (name, _) in &world.pools {
        tx.put_pools(&[PoolSpec::new(name.as_str(), Slots::Unlimited)?])?;
    }
    let leased: Vec<_> =
        world.leased.iter().enumerate().map(|(n, lane)| task(format!("leased{n}"), lane)).collect();
    let is_new = |inserted: &Inserted| match inserted {
        Inserted::New(id) => *id,
        Inserted::Exists(id) => panic!("{id:?} is there twice"),
    };
    let ids: Vec<TaskId> = tx.enqueue(world.now, &leased)?.iter().map(is_new).collect();
    // Not by `admit`, after which the transaction would define nothing more.
    let (holder, until) = ("h".try_into()?, world.now + Duration::from_secs(60));
    let batch = GrantBatch::new(&ids, &holder, world.now, until);
    assert!(raw(tx).grant_if_open(&batch)?.is_whole(&batch), "{world:?}");
    for (name, slots) in &world.pools {
        tx.put_pools(&[PoolSpec::new(name.as_str(), *slots)?])?;
    }
    for (key, max) in &world.limits {
        tx.put_limits(&[LimitSpec::new(key.clone(), *max)?])?;
    }
    let mut numbers = Vec::new();
    for (n, waiting) in world.waiting.iter().enumerate() {
        let mut task = task(n.to_string(), &waiting.lane).priority(waiting.priority);
        task.key.map_index = waiting.map_index;
        let task = task.logical_date(waiting.logical_date);
        numbers.push(is_new(&tx.enqueue(waiting.ready_at, &[task])?[0]));
    }
    Ok(numbers)
}

/// Two ticks in one transaction, each compared with the walk over what is there before it; rolled back at the end.
pub(crate) fn check(store: &dyn Store, world: &World) {
    let body = |tx: &mut Tx<'_>| {
        let numbers = set_up(tx, world)?;
        let first = tick(tx, world, &numbers, "first")?;
        let is_left = |at: &usize| !first.admitted.contains(at);
        let mut after = world.clone();
        after.leased.extend(first.admitted.iter().map(|at| world.waiting[*at].lane.clone()));
        let left: Vec<usize> = (0..world.waiting.len()).filter(is_left).collect();
        after.waiting = left.iter().map(|at| world.waiting[*at].clone()).collect();
        after.policy = Policy::Backfill;
        tick(tx, &after, &left.iter().map(|at| numbers[*at]).collect::<Vec<_>>(), "second")?;
        assert_eq!(tx.audit()?, []);
        Err(stationmaster::Error::abort("done"))
    };
    let answer: Result<()> = store.write(body);
    assert_eq!(answer.unwrap_err().to_string(), "the transaction was rolled back by its caller: done");
}

fn tick(tx: &mut Tx<'_>, world: &World, numbers: &[TaskId], name: &str) -> Result<Expected> {
    let expected = walk(world, numbers);
    let admission = tx.admit(world.now, &order(name, world.budget).policy(world.policy.clone()))?;
    let place = |id| numbers.iter().position(|number| *number == id).unwrap();
    let admitted: Vec<usize> = admission.granted.iter().map(|task| place(task.id)).collect();
    assert_eq!(admitted, expected.admitted, "{name} tick of {world:?}");
    let left: BTreeMap<_, _> =
        admission.refusals.into_iter().map(|lane| (lane.lane, (lane.tasks, lane.reason))).collect();
    assert_eq!(left, expected.left, "{name} tick of {world:?}");
    Ok(expected)
}
