//! A world in a store: set up by the verbs of a host, ticked by `admit`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stationmaster::admission::{AirflowWindow, IfExists, Policy};
use stationmaster::ops::{Admission, AdmitRequest};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::contract::{
    GrantBatch, LaneId, LaneKey, Move, Promote, Serving, ShareUse, SurveyQuery,
};
use stationmaster::store::{Inserted, Store, Tx};
use stationmaster::testing::core::naming;
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, NewTask, Result, TaskId, TaskKey, TaskRecord, TaskState, Timestamp};

use crate::ahead;
use crate::oracle::{Expected, walk};
use crate::world::World;

pub(crate) fn task(name: String, lane: &LaneKey) -> NewTask {
    let key = TaskKey::new("n", "w", "r", name).unwrap();
    let task = NewTask::new(key).pool(lane.pool.clone()).pool_slots(lane.slots);
    let mut task = lane.limits.iter().cloned().fold(task.queue(lane.queue.clone()), NewTask::limit);
    (task.counts, task.also) = (lane.counts.clone(), lane.also.clone());
    task.share.clone_from(&lane.share);
    task.priority(lane.priority)
}

pub(crate) fn order(name: &str, budget: usize, starts: bool) -> AdmitRequest {
    let lease = Duration::from_secs(60);
    let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), budget, lease);
    if starts { order.started() } else { order }
}

/// Grants what is to hold leases while the pools are unlimited and no limit is defined, then gives them their sizes.
pub(crate) fn set_up(tx: &mut Tx<'_>, world: &World) -> Result<Vec<TaskId>> {
    for (name, _) in &world.pools {
        tx.define([PoolSpec::new(name.as_str(), Slots::Unlimited)?], IfExists::Replace)?;
    }
    let leased: Vec<_> =
        world.leased.iter().enumerate().map(|(n, lane)| task(format!("leased{n}"), lane)).collect();
    let is_new = |inserted: &Inserted| match inserted {
        Inserted::New(id) => *id,
        other => panic!("{other}"),
    };
    let ids: Vec<TaskId> = tx.enqueue(world.now, &leased)?.iter().map(is_new).collect();
    // Not by `admit`, after which the transaction would define nothing more.
    let (holder, until) = ("h".try_into()?, world.now + Duration::from_secs(60));
    let noted = world.stamps.iter().filter(|(_, noted)| **noted != (0, 0));
    let noted = noted.map(|((pool, share), (stamp, dither))| {
        ShareUse::new(pool.clone(), share.clone(), 9, *stamp, *dither)
    });
    let noted: Vec<ShareUse> = noted.collect();
    let batch = GrantBatch::new(&ids, &holder, world.now, until).rates(&world.owed).shares(&noted);
    assert!(raw(tx).grant_if_open(&batch)?.is_whole(&batch), "{world:?}");
    for (name, slots) in &world.pools {
        tx.define([PoolSpec::new(name.as_str(), *slots)?], IfExists::Replace)?;
    }
    tx.define(&world.limits, IfExists::Replace)?;
    tx.pause(&world.paused)?;
    let mut numbers = Vec::new();
    for (n, waiting) in world.waiting.iter().enumerate() {
        let mut task =
            task(n.to_string(), &waiting.lane).priority(waiting.priority).attempts_as_runs(n % 3 == 2);
        task.key.map_index = waiting.map_index;
        let task = task.logical_date(waiting.logical_date);
        // An overdue task is part of the walk as if it had been ready since its instant.
        let (task, at) = match world.is_overdue(n) {
            true => (task.not_before(waiting.ready_at), Timestamp::UNIX_EPOCH),
            false => (task, waiting.ready_at),
        };
        numbers.push(is_new(&tx.enqueue_ageing(at, world.ageing, &[task])?[0]));
    }
    let resumed = world.waiting.iter().zip(&numbers).filter(|(task, _)| task.resumed).map(|(_, id)| *id);
    keep_slots(tx, world, &resumed.collect::<Vec<_>>())?;
    Ok(numbers)
}

/// Makes sensors of ready tasks, which keep their slots, and ends these.
fn keep_slots(tx: &mut Tx<'_>, world: &World, ids: &[TaskId]) -> Result<()> {
    let (holder, until) = ("h".try_into()?, world.now + Duration::from_secs(60));
    let batch = GrantBatch::new(ids, &holder, Timestamp::UNIX_EPOCH, until);
    let leases: Vec<_> = raw(tx).grant_if_open(&batch)?.tasks.iter().map(TaskRecord::lease_ref).collect();
    assert_eq!(leases.len(), ids.len());
    for (from, to) in [(TaskState::Queued, TaskState::Sensing), (TaskState::Sensing, TaskState::Scheduled)] {
        let keeps = |lease: &LeaseRef| {
            let mut to = Move::new(*lease, from, to);
            to.keeps_slots = true;
            to
        };
        let moves: Vec<_> = leases.iter().map(keeps).collect();
        assert!(raw(tx).move_if(&moves)?.iter().all(|moved| *moved), "{world:?}");
    }
    Ok(())
}

/// Compares ticks that were previewed, and whose grants are started afterwards, with ticks that start them.
pub(crate) fn check(store: &dyn Store, world: &World) {
    assert_eq!(run(store, world, false, ALL), run(store, world, true, ALL), "{world:?}");
}

/// More lanes than a world has.
const ALL: usize = 256;

/// The same ticks where they name few lanes, and read the others in pages if they can.
pub(crate) fn check_paged(store: &dyn Store, world: &World, named: usize) {
    let plain = run(store, world, false, named);
    assert_eq!(plain, run(store, world, true, named), "{world:?}");
}

/// Returns the lanes that a tick names at most: the first ones by number, those that it makes ready included. And whether
/// there are others.
pub(crate) fn named_lanes(
    tx: &mut Tx<'_>,
    world: &World,
    named: usize,
) -> Result<(BTreeSet<(LaneKey, bool)>, bool)> {
    let ready = raw(tx).survey(&SurveyQuery::new().queues(world.serves.clone()))?.lanes;
    let due = raw(tx).overdue(Promote::new(world.now, usize::MAX))?.lanes;
    let due = due.into_iter().filter(|lane| world.is_served(&lane.key.queue));
    let lanes: BTreeMap<LaneId, _> =
        ready.into_iter().chain(due).map(|lane| (lane.id, ((*lane.key).clone(), lane.keeps_slots))).collect();
    let is_more = lanes.len() > named;
    Ok((lanes.into_values().take(named).collect(), is_more))
}

/// Compares the refusals with those of the lanes that are named.
pub(crate) fn check_refusals(
    world: &World,
    (named, is_more): &(BTreeSet<(LaneKey, bool)>, bool),
    expected: &Expected,
    admission: &Admission,
) {
    assert_eq!(admission.more_lanes, *is_more, "{world:?}");
    let expected: BTreeMap<_, _> = expected
        .left
        .iter()
        .filter(|(kind, _)| named.contains(kind))
        .map(|(kind, left)| (kind.clone(), left.clone()))
        .collect();
    let refusals = admission.refusals.iter().cloned();
    let left: BTreeMap<_, _> =
        refusals.map(|lane| ((lane.lane, lane.keeps_slots), (lane.tasks, lane.reason))).collect();
    assert_eq!(left, expected, "{world:?}");
}

/// Compares when the tick is due again. It may be early because of a lane that sleeps or was not read. It may be later
/// than the next token of a key because of a lane that sleeps on another key, but then no task can start earlier.
/// Without a budget it may be late.
pub(crate) fn check_next(world: &World, named: usize, expected: &Expected, admission: &Admission) {
    let due = admission.next_due;
    if named == ALL || !admission.more_lanes {
        let next = expected.left.values().filter_map(|(_, reason)| reason.changes_at()).min();
        assert_eq!(due, next, "{world:?}");
    } else if world.budget > 0
        && let Some(next) = expected.has_tokens
    {
        assert!(due.is_some_and(|due| due <= next), "{due:?} is after {next}: {world:?}");
    }
}

/// Compares a tick by Airflow's window with its preview.
pub(crate) fn check_window(store: &dyn Store, world: &World) {
    // It knows neither families nor rates, nor several pools of a task, nor counts.
    let limits = world.limits.iter().filter(|spec| !spec.is_family && spec.rate.is_none()).cloned().collect();
    let mut world = World { limits, ..world.clone() };
    for lane in world.leased.iter_mut().chain(world.waiting.iter_mut().map(|task| &mut task.lane)) {
        lane.counts.clear();
        lane.also.clear();
        (lane.share, lane.priority) = (None, 0);
    }
    let world = &world;
    let body = |tx: &mut Tx<'_>| {
        set_up(tx, world)?;
        let window = AirflowWindow::new(1 + world.waiting.len() % 40);
        let order = order("window", world.budget, false).policy(Policy::AirflowWindow(window));
        ahead::admit(tx, world.now, &order)?;
        Err(stationmaster::Error::abort("done"))
    };
    let answer: Result<()> = store.write(body);
    assert_eq!(answer.unwrap_err().to_string(), "the transaction was rolled back by its caller: done");
}

/// Two ticks in one transaction, each compared with the walk over what is there before it; rolled back at the end.
/// Returns what was granted, as it is then, without its numbers.
fn run(store: &dyn Store, world: &World, fused: bool, named: usize) -> Vec<TaskRecord> {
    let mut granted = Vec::new();
    let body = |tx: &mut Tx<'_>| {
        let numbers = set_up(tx, world)?;
        // Told a lease and a half ago, and two leases ago.
        let (lease, announced_at) = (Duration::from_secs(60), world.now - Duration::from_secs(90));
        let others = Serving::new("other".try_into()?, Some(world.serve_others.clone()), announced_at, lease);
        let gone = Serving::new("gone".try_into()?, None, world.now - 2 * lease, lease);
        for told in [gone, others] {
            raw(tx).put_serving(&told, Timestamp::UNIX_EPOCH)?;
        }
        let mut notes = vec![(None, world.now), (Some(world.serve_others.clone()), world.now + lease / 2)];
        ahead::check_explanations(tx, world, &numbers, &notes, |at| !world.is_overdue(at))?;
        ahead::check_shares(tx, world, |at| !world.is_overdue(at))?;
        let first = tick(tx, world, &numbers, "first", (fused, named), &mut granted)?;
        notes.push((world.serves.clone(), world.now + 2 * lease));
        let is_left = |at: &usize| !first.admitted.contains(at);
        let mut after = world.clone();
        after.leased.extend(first.admitted.iter().map(|at| world.waiting[*at].lane.clone()));
        let left: Vec<usize> = (0..world.waiting.len()).filter(is_left).collect();
        after.waiting = left.iter().map(|at| world.waiting[*at].clone()).collect();
        after.policy = Policy::Backfill;
        // A clock may step back, which makes no token.
        after.now = Timestamp::from_micros(world.now.as_micros() - 5 + 3 * (numbers.len() as i64 % 8));
        after.owed.retain(|used| first.owed.iter().all(|newer| newer.key != used.key));
        after.owed.extend(first.owed);
        (after.stamps, after.grants) = (first.stamps, first.grants);
        let left: Vec<TaskId> = left.iter().map(|at| numbers[*at]).collect();
        ahead::check_explanations(tx, &after, &left, &notes, |_| true)?;
        ahead::check_shares(tx, &after, |_| true)?;
        tick(tx, &after, &left, "second", (fused, named), &mut granted)?;
        assert_eq!(tx.audit()?, []);
        Err(stationmaster::Error::abort("done"))
    };
    let answer: Result<()> = store.write(body);
    assert_eq!(answer.unwrap_err().to_string(), "the transaction was rolled back by its caller: done");
    granted.iter_mut().for_each(|task| task.id = TaskId(0));
    granted
}

fn tick(
    tx: &mut Tx<'_>,
    world: &World,
    numbers: &[TaskId],
    name: &str,
    (fused, named): (bool, usize),
    all: &mut Vec<TaskRecord>,
) -> Result<Expected> {
    let expected = walk(world, numbers);
    let lanes = named_lanes(tx, world, named)?;
    let mut order = naming(order(name, world.budget, fused).policy(world.policy.clone()), named);
    order.serves.clone_from(&world.serves);
    let admission = match fused {
        true => tx.admit(world.now, &order)?,
        false => {
            let is_ready = |at: usize| name == "second" || !world.is_overdue(at);
            ahead::check_positions(tx, world, numbers, is_ready)?;
            ahead::admit(tx, world.now, &order)?
        }
    };
    let place = |id| numbers.iter().position(|number| *number == id).unwrap();
    let admitted: Vec<usize> = admission.granted.iter().map(|task| place(task.id)).collect();
    assert_eq!(admitted, expected.admitted, "{name} tick of {world:?}");
    check_refusals(world, &lanes, &expected, &admission);
    check_next(world, named, &expected, &admission);
    match fused {
        true => all.extend(admission.granted),
        false => {
            let plain = admission.granted.iter().filter(|task| !task.attempt_runs);
            let leases: Vec<_> = plain.map(TaskRecord::lease_ref).collect();
            assert!(raw(tx).start_if_queued(&leases, world.now)?.iter().all(Option::is_some));
            let ids: Vec<TaskId> = admission.granted.iter().map(|task| task.id).collect();
            all.extend(raw(tx).tasks_by_id(&ids)?.into_iter().flatten());
        }
    }
    Ok(expected)
}
