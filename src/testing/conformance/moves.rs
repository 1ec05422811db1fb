//! Conditional moves.

use super::steps::Steps;
use super::world::{World, at, limit, pool, sized, task, to};
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::{Move, SurveyQuery};
use crate::store::{Discrepancy, Store};
use crate::task::{TaskRecord, TaskState};

cases!("moves":
    a_move_sets_what_it_says_and_ends_the_lease,
    fields_are_replaced_or_kept,
    counts_stop_at_their_largest,
    a_move_needs_the_epoch,
    a_move_needs_the_state,
    every_target_is_reached,
    each_move_has_its_own_condition,
    a_task_named_twice_is_moved_once,
    ready_again_only_without_a_due_instant,
    a_waiting_task_leaves_its_lane,
    only_the_holders_own_end_is_reported_as_its_finish,
    slots_may_be_kept_while_sensing,
    an_end_of_what_was_not_read_is_a_move,
    slots_held_where_none_can_be_are_found,
);

const TARGETS: [TaskState; 7] = [
    TaskState::Scheduled,
    TaskState::UpForRetry,
    TaskState::Sensing,
    TaskState::Success,
    TaskState::Failed,
    TaskState::Skipped,
    TaskState::Cancelled,
];

fn a_move_sets_what_it_says_and_ends_the_lease(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    let mut expected = world.task(id);
    let mut wanted = to(lease, TaskState::UpForRetry);
    wanted.due = Some(at(500));
    wanted.forgive = 3;
    wanted.lost = Some(2);
    wanted.ended_at = Some(at(40));
    wanted.message = Some("why".into());
    wanted.value = Some("what".into());
    assert_eq!(world.shift(&[wanted]), [true]);
    expected.state = TaskState::UpForRetry;
    expected.lease = None;
    expected.held_slots = 0;
    expected.due = Some(at(500));
    expected.ready_at = at(500);
    expected.forgiven = 3;
    expected.lost = 2;
    expected.ended_at = Some(at(40));
    expected.message = Some("why".into());
    expected.value = Some("what".into());
    assert_eq!(world.task(id), expected);
}

fn fields_are_replaced_or_kept(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = LeaseRef::new(id, 0);
    let mut first = to(lease, TaskState::Failed);
    first.forgive = 1;
    first.lost = Some(2);
    first.ended_at = Some(at(40));
    first.message = Some("why".into());
    first.value = Some(String::new());
    world.shift(&[first]);
    let task = world.task(id);
    assert_eq!(task.value.as_deref(), Some(""), "an empty text is a text");
    assert_eq!(task.ready_at, at(40), "without a due instant, when the attempt ended");
    let mut second = to(lease, TaskState::Skipped);
    second.due = Some(at(9));
    world.shift(&[second]);
    let task = world.task(id);
    assert_eq!((task.message.clone(), task.value.clone()), (None, None), "replaced, also when none");
    assert_eq!((task.ended_at, task.forgiven, task.lost), (Some(at(40)), 1, 2), "kept");
    assert_eq!(task.ready_at, at(9));
    world.shift(&[to(lease, TaskState::Scheduled)]);
    assert_eq!(world.task(id).ready_at, at(9), "without any, kept");
    let mut third = to(lease, TaskState::Success);
    third.ended_at = Some(at(41));
    third.forgive = 2;
    third.lost = Some(0);
    world.shift(&[third]);
    let task = world.task(id);
    assert_eq!((task.ended_at, task.due), (Some(at(41)), None));
    assert_eq!((task.forgiven, task.lost), (3, 0), "one is added to, the other is replaced");
}

fn counts_stop_at_their_largest(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    for (more, expected) in [(u32::MAX - 1, u32::MAX - 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
        let mut wanted = to(LeaseRef::new(id, 0), TaskState::Scheduled);
        (wanted.forgive, wanted.lost) = (more, Some(expected));
        world.shift(&[wanted]);
        let task = world.task(id);
        assert_eq!((task.forgiven, task.lost), (expected, expected), "{more} more");
    }
}

fn only_the_holders_own_end_is_reported_as_its_finish(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    assert_eq!(world.task(id).finished, None);
    let mut own = to(lease, TaskState::UpForRetry);
    (own.due, own.finished) = (Some(at(50)), true);
    world.shift(&[own]);
    assert_eq!(world.task(id).finished, Some(TaskState::UpForRetry));
    world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(50), 9)));
    let due = world.task(id);
    assert_eq!((due.state, due.finished), (TaskState::Scheduled, Some(TaskState::UpForRetry)), "kept");
    let lease = world.run(&[id])[0];
    world.shift(&[to(lease, TaskState::Failed)]);
    assert_eq!(world.task(id).finished, None, "another's word");
    for target in TARGETS {
        let lease = world.task(id).lease_ref();
        let mut own = to(lease, target);
        own.finished = true;
        world.shift(&[own]);
        assert_eq!(world.task(id).finished, Some(target));
    }
    world.shift(&[to(lease, TaskState::Scheduled)]);
    assert_eq!(world.task(id).finished, None);
}

fn a_move_needs_the_epoch(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let old = world.run(&[id])[0];
    world.shift(&[to(old, TaskState::Scheduled)]);
    let new = world.run(&[id])[0];
    let before = world.task(id);
    for epoch in [old.epoch, new.epoch + 1, 0, i64::MIN, i64::MAX] {
        let stale = to(LeaseRef::new(id, epoch), TaskState::Success);
        assert_eq!(world.shift(&[stale]), [false], "epoch {epoch}");
        assert_eq!(world.task(id), before, "a stale holder changes nothing");
    }
    let nobody = to(LeaseRef::new(TaskId(i64::MAX), 1), TaskState::Success);
    assert_eq!(world.shift(&[nobody]), [false]);
    assert_eq!(world.shift(&[to(new, TaskState::Success)]), [true]);
}

/// Creates one task in each state, by state.
fn one_of_each(world: World<'_>) -> Vec<(TaskState, LeaseRef)> {
    let names = TaskState::ALL.map(TaskState::as_str);
    let ids = world.insert(&names.map(|name| task(name).limit(limit("l"))));
    let rest: Vec<TaskId> = ids[2..].to_vec();
    world.admit(&ids[1..2]);
    let leases = world.run(&rest);
    let mut moves: Vec<Move> =
        leases.iter().zip(TaskState::ALL).skip(1).map(|(lease, _)| to(*lease, TaskState::Failed)).collect();
    for (wanted, state) in moves.iter_mut().zip(&TaskState::ALL[3..]) {
        wanted.to = *state;
        wanted.due = (*state == TaskState::UpForRetry).then(|| at(500));
    }
    assert!(world.shift(&moves).iter().all(|moved| *moved));
    let tasks = world.read(|tx| tx.tasks_by_id(&ids));
    let tasks: Vec<TaskRecord> = tasks.into_iter().flatten().collect();
    assert_eq!(tasks.iter().map(|task| task.state).collect::<Vec<_>>(), TaskState::ALL);
    tasks.iter().map(|task| (task.state, task.lease_ref())).collect()
}

fn a_move_needs_the_state(store: &dyn Store) {
    let world = World(store);
    let all = one_of_each(world);
    for (state, lease) in &all {
        let before = world.task(lease.id);
        let move_from = |from| world.write(|tx| tx.move_if(&[Move::new(*lease, from, TaskState::Skipped)]));
        for from in TaskState::ALL.into_iter().filter(|other| other != state) {
            assert_eq!(move_from(from), [false], "{state} is not {from}");
            assert_eq!(world.task(lease.id), before, "{state} is not {from}");
        }
        assert_eq!(move_from(*state), [true], "{state}");
        assert_eq!(world.task(lease.id).state, TaskState::Skipped);
    }
}

fn every_target_is_reached(store: &dyn Store) {
    let world = World(store);
    let mut all = one_of_each(world);
    for target in TARGETS {
        for (state, lease) in &mut all {
            if !matches!(state, TaskState::Scheduled | TaskState::Queued | TaskState::Running) {
                continue;
            }
            world.shift(&[to(*lease, TaskState::Scheduled)]);
            *lease = match state {
                TaskState::Queued => world.admit(&[lease.id])[0].lease_ref(),
                TaskState::Running => world.run(&[lease.id])[0],
                _ => *lease,
            };
            let ready = world.ready();
            assert_eq!(world.shift(&[to(*lease, target)]), [true], "{state} to {target}");
            let task = world.task(lease.id);
            assert_eq!((task.state, task.lease, task.held_slots), (target, None, 0), "{state} to {target}");
            let was = u64::from(*state == TaskState::Scheduled);
            let is = u64::from(target == TaskState::Scheduled);
            assert_eq!(world.ready(), ready - was + is, "{state} to {target}");
        }
    }
    let (first, last) = super::world::ends_of_time();
    assert_eq!(world.write(|tx| tx.hold_expired(last, 9)), []);
    assert!(world.read(|tx| tx.next_expiry()).is_none() && first < last);
}

fn each_move_has_its_own_condition(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d"]);
    let leases = world.run(&ids[1..]);
    let moves = [
        Move::new(leases[2], TaskState::Running, TaskState::Success),
        Move::new(LeaseRef::new(ids[0], 0), TaskState::Running, TaskState::Failed),
        Move::new(leases[0], TaskState::Running, TaskState::Skipped),
        Move::new(LeaseRef::new(ids[2], 7), TaskState::Running, TaskState::Failed),
    ];
    assert_eq!(world.write(|tx| tx.move_if(&moves)), [true, false, true, false]);
    let tasks = world.read(|tx| tx.tasks_by_id(&ids));
    let states: Vec<TaskState> = tasks.into_iter().flatten().map(|task| task.state).collect();
    let expected = [TaskState::Scheduled, TaskState::Skipped, TaskState::Running, TaskState::Success];
    assert_eq!(states, expected);
}

fn a_task_named_twice_is_moved_once(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = LeaseRef::new(id, 0);
    let scheduled = TaskState::Scheduled;
    let mut twice =
        [Move::new(lease, scheduled, TaskState::Failed), Move::new(lease, scheduled, TaskState::Skipped)];
    twice[0].forgive = 1;
    twice[1].forgive = 5;
    assert_eq!(world.write(|tx| tx.move_if(&twice)), [true, false]);
    let task = world.task(id);
    assert_eq!((task.state, task.forgiven, world.ready()), (TaskState::Failed, 1, 0));
}

fn ready_again_only_without_a_due_instant(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let mut later = to(world.run(&[id])[0], TaskState::Scheduled);
    later.due = Some(at(300));
    world.shift(&[later.clone()]);
    assert_eq!((world.ready(), world.read(|tx| tx.next_due())), (0, Some(at(300))));
    later.due = None;
    world.shift(&[later]);
    assert_eq!((world.ready(), world.read(|tx| tx.next_due())), (1, None));
    assert!(world.task(id).is_ready());
}

fn a_waiting_task_leaves_its_lane(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("ready"), task("later").not_before(at(50))]);
    let moves: Vec<Move> = ids.iter().map(|id| to(LeaseRef::new(*id, 0), TaskState::Skipped)).collect();
    assert_eq!(world.shift(&moves), [true; 2]);
    assert_eq!((world.ready(), world.read(|tx| tx.next_due())), (0, None));
    assert_eq!(world.write(|tx| tx.promote_due(at(99))), 0);
}

fn slots_may_be_kept_while_sensing(store: &dyn Store) {
    let world = World(store);
    let db = pool("db");
    world.write(|tx| tx.put_pools(&[sized("db", 9)]));
    let id = world.insert(&[task("a").pool(db.clone()).pool_slots(4)])[0];
    let mut keeping = to(world.run(&[id])[0], TaskState::Sensing);
    keeping.keeps_slots = true;
    world.shift(&[keeping.clone()]);
    assert_eq!((world.task(id).held_slots, world.used(&db)), (4, 4));
    assert_eq!(world.read(|tx| tx.audit()), []);
    keeping.to = TaskState::Success;
    keeping.keeps_slots = false;
    world.shift(&[keeping]);
    assert_eq!((world.task(id).held_slots, world.used(&db)), (0, 0));
}

fn slots_held_where_none_can_be_are_found(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let mut wrong = to(world.run(&[id])[0], TaskState::Success);
    wrong.keeps_slots = true;
    world.shift(&[wrong.clone()]);
    let found = world.read(|tx| tx.audit());
    assert!(matches!(&found[..], [Discrepancy::Task { task, .. }] if *task == id), "{found:?}");
    wrong.keeps_slots = false;
    world.shift(&[wrong]);
}

/// A store may leave it to its caller to read and move them. It does so with all of them or with none.
fn an_end_of_what_was_not_read_is_a_move(store: &dyn Store) {
    let world = World(store);
    let names = ["queued", "running", "stale", "ended", "sensing", "ready"];
    let tasks = names.map(|name| task(name).attempts_as_runs(name == "running"));
    let ids = world.insert(&tasks);
    let queued = world.admit(&ids[..1])[0].lease_ref();
    let running = world.run(&ids[1..4]);
    world.end(&running[2..]);
    world.sense(&ids[4..5]);
    let before = world.read(|tx| tx.tasks_by_id(&ids));
    let stale = LeaseRef::new(ids[2], running[1].epoch + 1);
    let leases = [running[0], stale, running[2], LeaseRef::new(ids[4], 1), queued, LeaseRef::new(ids[5], 0)];
    // Earlier than each of them was queued.
    let end = |lease| crate::store::contract::Move {
        ended_at: Some(at(5)),
        value: Some("what".into()),
        finished: true,
        ..to(lease, TaskState::Success)
    };
    let ended = world.write(|tx| tx.end_if_leased(&leases.map(end)));
    let after = world.read(|tx| tx.tasks_by_id(&ids));
    if ended == [None; 6] {
        assert_eq!(after, before);
        return;
    }
    assert_eq!(ended, [Some(true), None, None, None, Some(false), None], "who records a run");
    assert_eq!(after[2..], before[2..], "what has no lease of that epoch is as it was");
    for (before, after) in before.into_iter().zip(after).take(2) {
        let mut expected = before.unwrap();
        let recorded = expected.recorded_at(at(5));
        (expected.state, expected.finished) = (TaskState::Success, Some(TaskState::Success));
        (expected.lease, expected.held_slots) = (None, 0);
        (expected.ended_at, expected.ready_at) = (Some(recorded), recorded);
        (expected.message, expected.value) = (None, Some("what".into()));
        assert_eq!(after, Some(expected));
    }
    assert_eq!(world.read(|tx| tx.audit()), []);
}
