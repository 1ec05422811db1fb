//! Requests, and forgetting what has ended.

use super::scene::request;
use super::snapshot::{Snapshot, Watch};
use super::steps::Steps;
use super::world::{World, at, key, limit, rows, task, to};
use crate::admission::LaneId;
use crate::admission::limits::LimitSpec;
use crate::id::RequestId;
use crate::lease::{LeaseRef, TaskId};
use crate::store::Store;
use crate::store::contract::{Forget, Move};
use crate::task::TaskState;

cases!("retention":
    a_request_is_remembered_with_its_grants,
    requests_are_forgotten_before_an_instant,
    the_oldest_requests_are_forgotten_first,
    requests_are_forgotten_beyond_a_number,
    age_and_number_of_requests_have_one_limit,
    ended_tasks_are_forgotten_before_an_instant,
    the_earliest_ended_are_forgotten_first,
    each_end_is_forgotten_for_itself,
    tasks_that_did_not_end_stay,
    tasks_that_were_sensors_are_forgotten_by_an_instant_of_their_own,
    sensors_go_with_their_tasks,
    a_follower_can_tell_that_it_missed_an_end,
    a_forgotten_key_is_new_again,
    a_lane_is_made_again_for_new_and_for_cleared_tasks,
    a_limit_key_is_known_while_a_task_that_has_not_ended_carries_it,
    what_a_transaction_forgot_it_can_insert_anew,
);

fn named(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

fn a_request_is_remembered_with_its_grants(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d"]);
    assert_eq!(world.read(|tx| tx.granted(&request())), None);
    world.admit_as(&request(), &[ids[2], ids[0], ids[1]], at(5));
    world.admit_as(&named("other"), &ids[3..], at(5));
    let grants = [2, 0, 1, 3].map(|index: usize| LeaseRef::new(ids[index], 1));
    assert_eq!(world.read(|tx| tx.granted(&request())).as_deref(), Some(&grants[..3]), "in their order");
    assert_eq!(world.read(|tx| tx.granted(&named("other"))).as_deref(), Some(&grants[3..]));
    assert_eq!(world.read(|tx| tx.granted(&named("TICK"))), None);
    world.shift(&[to(grants[2], TaskState::Failed)]);
    assert_eq!(
        world.read(|tx| tx.granted(&request())).as_deref(),
        Some(&grants[..3]),
        "whatever became of them"
    );
}

fn requests_are_forgotten_before_an_instant(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    world.admit_as(&request(), &ids, at(5));
    assert_eq!(
        world.write(|tx| tx.forget_requests(Forget::before(at(5), 9))),
        0,
        "at the instant itself it stays"
    );
    assert!(world.read(|tx| tx.granted(&request())).is_some());
    assert_eq!(
        world.write(|tx| tx.forget_requests(Forget::before(at(6), 9))),
        1,
        "ticks are counted, not grants"
    );
    assert_eq!(world.read(|tx| tx.granted(&request())), None);
    assert_eq!(world.write(|tx| tx.forget_requests(Forget::before(at(6), 9))), 0);
}

fn the_oldest_requests_are_forgotten_first(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    for (noted, tasks) in [3, 1, 4, 2].into_iter().zip(ids.chunks(2)) {
        world.admit_as(&named(&noted.to_string()), tasks, at(noted));
    }
    let left = || [1, 2, 3, 4].map(|n: i64| world.read(|tx| tx.granted(&named(&n.to_string()))).is_some());
    assert_eq!(world.write(|tx| tx.forget_requests(Forget::before(at(99), 2))), 2);
    assert_eq!(left(), [false, false, true, true]);
    assert_eq!(world.write(|tx| tx.forget_requests(Forget::before(at(4), usize::MAX))), 1);
    assert_eq!(left(), [false, false, false, true]);
}

fn requests_are_forgotten_beyond_a_number(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d"]);
    // Of two noted at one instant the name decides.
    for ((name, noted), task) in [("d", 3), ("b", 7), ("c", 3), ("a", 9)].into_iter().zip(ids.chunks(1)) {
        world.admit_as(&named(name), task, at(noted));
    }
    let left = || ["a", "b", "c", "d"].map(|name| world.read(|tx| tx.granted(&named(name))).is_some());
    let forget = |most| world.write(|tx| tx.forget_requests(Forget::before(at(0), 9).most(most)));
    assert_eq!((forget(usize::MAX), forget(4)), (0, 0), "as many as may stay");
    assert_eq!((forget(3), left()), (1, [true, true, false, true]));
    assert_eq!((forget(1), left()), (2, [true, false, false, false]));
    assert_eq!((forget(0), left()), (1, [false; 4]));
    assert_eq!(forget(0), 0);
}

fn age_and_number_of_requests_have_one_limit(store: &dyn Store) {
    let world = World(store);
    let names = ["1", "2", "3", "4", "5", "6"];
    let ids = world.plain(&names);
    for (noted, task) in (1..).zip(ids.chunks(1)) {
        world.admit_as(&named(&noted.to_string()), task, at(noted));
    }
    let left = || names.iter().filter(|name| world.read(|tx| tx.granted(&named(name))).is_some()).count();
    let forget = |before, most, limit| {
        let gone = world.write(|tx| tx.forget_requests(Forget::before(at(before), limit).most(most)));
        (gone, left())
    };
    assert_eq!(forget(3, 9, 1), (1, 5), "two are old");
    assert_eq!(forget(3, 4, 9), (1, 4), "one is old, and one is too many: the same");
    assert_eq!(forget(4, 1, 2), (2, 2), "one is old, and three are too many");
    assert_eq!(forget(6, 9, 0), (0, 2));
    assert_eq!(forget(99, 1, 9), (2, 0), "whatever the number, the old go");
}

fn end(world: World<'_>, id: TaskId, state: TaskState, ended: i64) {
    let mut ending: Move = to(world.task(id).lease_ref(), state);
    ending.ended_at = Some(at(ended));
    world.shift(&[ending]);
}

fn ended_tasks_are_forgotten_before_an_instant(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d"]);
    world.run(&ids[..2]);
    for (id, state) in ids.iter().zip([TaskState::Success, TaskState::Failed, TaskState::Skipped]) {
        end(world, *id, state, 50);
    }
    assert_eq!(
        world.write(|tx| tx.forget_all_ended(at(50), at(50), 9)),
        0,
        "at the instant itself they stay"
    );
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(51), at(51), 9)), 3);
    let left = world.read(|tx| tx.tasks_by_id(&ids));
    assert_eq!(left.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, false, true]);
    assert_eq!(world.read(|tx| tx.tasks(&["a", "b", "c"].map(key))), [None, None, None]);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(51), at(51), 9)), 0);
}

fn the_earliest_ended_are_forgotten_first(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d"]);
    for (id, ended) in ids.iter().zip([30, 10, 20, 10]) {
        end(world, *id, TaskState::Success, ended);
    }
    let left =
        || -> Vec<bool> { world.read(|tx| tx.tasks_by_id(&ids)).iter().map(Option::is_some).collect() };
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 1)), 1);
    assert_eq!(left(), [true, false, true, true], "of equal instants the first that arrived");
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 2)), 2);
    assert_eq!(left(), [true, false, false, false]);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), usize::MAX)), 1);
}

fn each_end_is_forgotten_for_itself(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d", "e"]);
    let ends =
        [TaskState::Failed, TaskState::Success, TaskState::Skipped, TaskState::Failed, TaskState::Failed];
    for ((id, state), ended) in ids.iter().zip(ends).zip([10, 20, 30, 40, 50]) {
        end(world, *id, state, ended);
    }
    let forget = |state, before, limit| {
        let gone = world.write(|tx| tx.forget_ended(state, at(before), at(before), limit));
        let left = world.read(|tx| tx.tasks_by_id(&ids));
        (gone, left.iter().map(Option::is_some).collect::<Vec<_>>())
    };
    assert_eq!(forget(TaskState::Skipped, 30, 9), (0, vec![true; 5]), "at the instant itself it stays");
    assert_eq!(forget(TaskState::Success, 99, 9), (1, vec![true, false, true, true, true]));
    assert_eq!(forget(TaskState::Failed, 50, 1), (1, vec![false, false, true, true, true]), "the earliest");
    assert_eq!(forget(TaskState::Failed, 50, 9), (1, vec![false, false, true, false, true]));
    assert_eq!(forget(TaskState::Skipped, 99, 9), (1, vec![false, false, false, false, true]));
    for state in TaskState::ALL.into_iter().filter(|state| !state.is_end()) {
        assert_eq!(forget(state, 99, 9).0, 0, "{state} is no end");
    }
}

fn tasks_that_did_not_end_stay(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["scheduled", "queued", "running", "sensing", "retry", "resumed"]);
    world.admit(&ids[1..2]);
    let leases = world.run(&ids[2..]);
    let mut moves = [
        to(leases[1], TaskState::Sensing),
        to(leases[2], TaskState::UpForRetry),
        to(leases[3], TaskState::Scheduled),
    ];
    for wanted in &mut moves {
        wanted.ended_at = Some(at(40));
    }
    moves[1].due = Some(at(45));
    world.shift(&moves);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 99)), 0);
    assert!(world.read(|tx| tx.tasks_by_id(&ids)).iter().all(Option::is_some));
}

fn tasks_that_were_sensors_are_forgotten_by_an_instant_of_their_own(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["early", "late", "resumed", "plain", "later"]);
    let sensors = world.sense(&ids[..3]);
    let refs: Vec<LeaseRef> = sensors.iter().map(|sensor| sensor.lease_ref()).collect();
    world.write(|tx| tx.end_sensors_if_waiting(&refs));
    for (id, ended) in ids.iter().zip([30, 40, 40, 50, 60]) {
        end(world, *id, TaskState::Success, ended);
    }
    let left =
        || -> Vec<bool> { world.read(|tx| tx.tasks_by_id(&ids)).iter().map(Option::is_some).collect() };
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(60), at(40), 2)), 2, "those that stay do not count");
    assert_eq!(left(), [false, true, true, false, true]);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(60), at(40), 9)), 0, "not at the instant itself");
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(40), at(99), 9)), 0, "both instants bind sensors");
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(41), 9)), 3);
}

fn sensors_go_with_their_tasks(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let sensors = world.sense(&ids);
    world.write(|tx| tx.end_sensors_if_waiting(&[sensors[0].lease_ref()]));
    end(world, ids[0], TaskState::Success, 50);
    let last = world.read(|tx| tx.sensor_changes()).last;
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 9)), 1);
    let left = world.read(|tx| tx.sensors(&["a", "b"].map(key)));
    assert_eq!(left, [None, Some(sensors[1].clone())]);
    let watch = Watch { tasks: ["a", "b"].map(key).to_vec(), ..Watch::default() };
    assert_eq!(world.read(|tx| Snapshot::of(tx, &watch)).changed, sensors[1..]);
    assert!(world.read(|tx| tx.sensor_changes()).last >= last, "a cursor never goes back");
}

fn a_follower_can_tell_that_it_missed_an_end(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "none"]);
    let sensors = world.sense(&ids[..2]);
    let cursor = world.read(|tx| tx.sensor_changes()).last;
    let forgotten = || world.read(|tx| tx.sensor_changes()).last_forgotten;
    end(world, ids[2], TaskState::Success, 40);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(45), at(45), 9)), 1);
    assert_eq!(forgotten(), 0, "a task that never was a sensor");
    let refs = sensors.iter().map(|sensor| sensor.lease_ref()).rev().collect::<Vec<_>>();
    let ended = world.write(|tx| tx.end_sensors_if_waiting(&refs));
    let changes: Vec<u64> = ended.into_iter().flatten().map(|sensor| sensor.changed).collect();
    assert!(cursor < changes[0] && changes[0] < changes[1]);
    end(world, ids[0], TaskState::Success, 50);
    end(world, ids[1], TaskState::Success, 60);
    assert_eq!(forgotten(), 0);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(55), at(55), 9)), 1);
    assert_eq!(forgotten(), changes[1], "that of the deleted one, which is ahead of the cursor");
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 9)), 1);
    assert_eq!(forgotten(), changes[1], "it never goes back");
    assert!(forgotten() <= world.read(|tx| tx.sensor_changes()).last);
}

fn a_forgotten_key_is_new_again(store: &dyn Store) {
    let world = World(store);
    let old = world.insert(&[task("a").limit(limit("l"))])[0];
    world.sense(&[old]);
    world.write(|tx| tx.end_sensors_if_waiting(&[LeaseRef::new(old, 1)]));
    end(world, old, TaskState::Failed, 50);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 9)), 1);
    let new = world.insert(&[task("a").limit(limit("l"))])[0];
    assert!(new > old, "a number is never given twice");
    let task = world.task(new);
    assert_eq!((task.epoch, task.attempt, task.state), (0, 0, TaskState::Scheduled));
    assert_eq!(world.read(|tx| tx.sensors(&[key("a")])), [None]);
}

/// The lane of the only ready task.
fn lane(world: World<'_>) -> LaneId {
    world.read(|tx| tx.ready_lanes())[0].id
}

fn a_lane_is_made_again_for_new_and_for_cleared_tasks(store: &dyn Store) {
    let world = World(store);
    let heavy = |name: &str| task(name).pool_slots(2);
    let ids = world.insert(&[heavy("a"), heavy("b"), task("light")]);
    end(world, ids[0], TaskState::Success, 50);
    let first = lane(world);
    end(world, ids[1], TaskState::Success, 60);
    end(world, ids[2], TaskState::Success, 60);
    assert_eq!(world.read(|tx| tx.ready_lanes()), []);
    let again = to(world.task(ids[0]).lease_ref(), TaskState::Scheduled);
    world.shift(&[again]);
    let needs = world.task(ids[0]).lane;
    assert_eq!((needs.slots, world.read(|tx| tx.ready_lanes())[0].key.clone()), (2, needs.clone()));
    assert!(lane(world) >= first, "a number is never given to another lane");
    assert_eq!(world.run(&ids[..1]).len(), 1, "the cleared task is granted from it");
    assert_eq!(world.read(|tx| tx.audit()), []);
    end(world, ids[0], TaskState::Success, 60);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 9)), 3);
    world.insert(&[heavy("d")]);
    assert!(lane(world) >= first, "a number is never given to another lane");
    assert_eq!(world.read(|tx| tx.ready_lanes())[0].key, needs);
}

/// A key without a maximum is known while a task carries it that has not ended, whatever retention still
/// keeps.
fn a_limit_key_is_known_while_a_task_that_has_not_ended_carries_it(store: &dyn Store) {
    let world = World(store);
    let (shared, own, bounded) = (limit("shared"), limit("own"), limit("bounded"));
    world.write(|tx| tx.put_limits(&[LimitSpec::new(bounded.clone(), 3).unwrap()]));
    let known = || -> Vec<bool> {
        let keys = [shared.clone(), own.clone(), bounded.clone()];
        world.read(|tx| tx.limits(&keys)).iter().map(Option::is_some).collect()
    };
    let ids = world.insert(&[
        task("a").limit(shared.clone()).limit(own.clone()).limit(bounded.clone()),
        task("b").limit(shared.clone()),
        task("c").limit(shared.clone()),
    ]);
    assert_eq!(known(), [true; 3]);
    let ends = [(50, [true, false, true]), (60, [true, false, true]), (70, [false, false, true])].into_iter();
    for (id, (ended, expected)) in ids.iter().zip(ends) {
        world.run(&[*id]);
        end(world, *id, TaskState::Success, ended);
        assert_eq!(known(), expected, "after {ended}");
        assert_eq!(world.read(|tx| tx.audit()), []);
    }
    world.shift(&[to(world.task(ids[0]).lease_ref(), TaskState::Scheduled)]);
    assert_eq!(known(), [true; 3], "a cleared task carries its keys again");
    world.run(&ids[..1]);
    let used = world.read(|tx| tx.limits(&[shared.clone(), own.clone()]));
    assert!(used.into_iter().flatten().all(|limit| limit.used == 1), "and counts against them");
    end(world, ids[0], TaskState::Success, 80);
    assert_eq!(known(), [false, false, true]);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(75), at(75), 9)), 2);
    assert_eq!((known(), world.read(|tx| tx.audit())), (vec![false, false, true], vec![]));
    world.write(|tx| tx.delete_limits(std::slice::from_ref(&bounded)));
    assert_eq!(known(), [false; 3], "nothing kept it but its maximum");
}

fn what_a_transaction_forgot_it_can_insert_anew(store: &dyn Store) {
    let world = World(store);
    let id = world.insert(&[task("a").limit(limit("l"))])[0];
    end(world, id, TaskState::Success, 50);
    let needs = [task("b").pool_slots(3), task("c").limit(limit("l")), task("d").limit(limit("m"))];
    let tasks = world.write(|tx| {
        assert_eq!(tx.tasks_by_id(&[id])?.len(), 1);
        assert_eq!(tx.forget_all_ended(at(99), at(99), 9)?, 1);
        tx.insert_tasks_if_absent(&rows(&needs))?;
        tx.tasks(&["b", "c", "d"].map(key))
    });
    let found: Vec<_> = tasks.into_iter().flatten().map(|task| task.lane).collect();
    let expected = rows(&needs).into_iter().map(|row| row.lane).collect::<Vec<_>>();
    assert_eq!(found, expected);
    assert_eq!(world.read(|tx| tx.limits(&["l", "m"].map(limit))).iter().flatten().count(), 2);
}
