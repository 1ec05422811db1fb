//! Granting and starting.

use super::steps::Steps;
use super::world::{World, at, holder, limit, pool, sized, task, to};
use crate::error::{Error, Result};
use crate::lease::{Lease, LeaseRef, TaskId};
use crate::store::Store;
use crate::store::contract::{GrantBatch, Started};
use crate::task::{TaskRecord, TaskState};
use crate::testing::RawStoreExt;

cases!("grants":
    a_granted_task_has_a_lease,
    only_ready_tasks_are_granted,
    a_task_named_twice_is_granted_once,
    answered_in_the_order_of_the_batch,
    each_grant_raises_epoch_and_attempt,
    a_grant_keeps_what_the_host_said,
    a_grant_takes_slots_and_counts_against_limits,
    a_queued_task_starts_once,
    a_start_tells_whose_attempts_are_recorded,
    a_start_needs_the_epoch,
    the_first_start_is_kept,
    a_started_grant_is_a_grant_and_a_start,
);

fn grant(world: World<'_>, tasks: &[TaskId], now: i64, expires: i64) -> Vec<TaskRecord> {
    let holder = holder("h");
    world.write(|tx| tx.grant_if_ready(tasks, &holder, at(now), at(expires)))
}

fn a_granted_task_has_a_lease(store: &dyn Store) {
    let world = World(store);
    let id = world.insert(&[task("a").pool_slots(3)])[0];
    let mut expected = world.task(id);
    expected.state = TaskState::Queued;
    expected.epoch = 1;
    expected.attempt = 1;
    expected.held_slots = 3;
    expected.queued_at = Some(at(7));
    expected.lease = Some(Lease::new(holder("h"), at(9)));
    assert_eq!(grant(world, &[id], 7, 9), [expected.clone()]);
    assert_eq!(world.task(id), expected);
}

fn only_ready_tasks_are_granted(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&["queued", "running", "ended", "sensing", "retry", "ready"].map(task));
    let later = world.insert(&[task("later").not_before(at(5))])[0];
    world.admit(&ids[..1]);
    let leases = world.run(&ids[1..5]);
    let mut retry = to(leases[3], TaskState::UpForRetry);
    retry.due = Some(at(9));
    world.shift(&[to(leases[1], TaskState::Failed), to(leases[2], TaskState::Sensing), retry]);
    let before = world.read(|tx| tx.tasks_by_id(&ids[..5]));
    let asked = [&ids[..], &[later, TaskId(i64::MAX), TaskId(0)]].concat();
    let granted = grant(world, &asked, 100, 200);
    assert_eq!(granted.iter().map(|task| task.id).collect::<Vec<_>>(), ids[5..]);
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids[..5])), before, "the others are as they were");
    assert_eq!((world.ready(), grant(world, &asked, 100, 200)), (0, vec![]), "nor a second time");
}

fn a_task_named_twice_is_granted_once(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let granted = grant(world, &[ids[0], ids[1], ids[0]], 1, 2);
    assert_eq!(
        granted.iter().map(|task| (task.id, task.epoch)).collect::<Vec<_>>(),
        [(ids[0], 1), (ids[1], 1)]
    );
    assert_eq!(world.task(ids[0]).attempt, 1);
}

fn answered_in_the_order_of_the_batch(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d", "e"]);
    let asked = [ids[3], ids[0], ids[4], ids[1], ids[2]];
    let granted = grant(world, &asked, 1, 2);
    assert_eq!(granted.iter().map(|task| task.id).collect::<Vec<_>>(), asked);
}

fn each_grant_raises_epoch_and_attempt(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    for round in 1..=3 {
        let lease = world.run(&[id])[0];
        let task = world.task(id);
        assert_eq!((lease, task.attempt), (LeaseRef::new(id, round), round as u32));
        let mut again = to(lease, TaskState::Scheduled);
        again.forgive = 1;
        assert_eq!(world.shift(&[again]), [true]);
        let task = world.task(id);
        assert_eq!((task.epoch, task.attempt, task.forgiven), (round, round as u32, round as u32));
    }
}

/// The landed value that a resumed task needs, and the message of its last failure.
fn a_grant_keeps_what_the_host_said(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let mut resume = to(world.run(&[id])[0], TaskState::Scheduled);
    resume.value = Some("landed".into());
    resume.message = Some("note".into());
    resume.ended_at = Some(at(30));
    world.shift(&[resume]);
    let again = world.admit(&[id]).remove(0);
    assert_eq!((again.value.as_deref(), again.message.as_deref()), (Some("landed"), Some("note")));
    assert_eq!((again.started_at, again.first_started_at), (Some(at(20)), Some(at(20))));
    assert_eq!((again.ended_at, again.queued_at), (Some(at(30)), Some(at(30))));
    assert_eq!(world.task(id), again);
}

fn a_grant_takes_slots_and_counts_against_limits(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 5), sized("idle", 5)]));
    let in_db = |name: &str| task(name).pool(pool("db"));
    let ids = world.insert(&[
        in_db("a").pool_slots(2).limit(limit("l")),
        in_db("b").limit(limit("l")).limit(limit("m")),
        in_db("c"),
        task("d").limit(limit("m")),
    ]);
    let used = || {
        let pools = ["db", "default_pool", "idle"].map(|name| world.used(&pool(name)));
        let limits = world.read(|tx| tx.limits(&["l", "m"].map(limit)));
        (pools, limits.into_iter().flatten().map(|limit| limit.used).collect::<Vec<_>>())
    };
    grant(world, &[ids[0], ids[0], ids[1]], 1, 2);
    assert_eq!(used(), ([3, 0, 0], vec![2, 1]), "a task named twice counts once");
    grant(world, &ids, 1, 2);
    assert_eq!(used(), ([4, 1, 0], vec![2, 2]), "nor do tasks that were granted before");
    world.end(&[LeaseRef::new(ids[0], 1), LeaseRef::new(ids[3], 1)]);
    assert_eq!(used(), ([2, 0, 0], vec![1, 1]));
    world.shift(&[
        to(LeaseRef::new(ids[0], 1), TaskState::Failed),
        to(LeaseRef::new(ids[1], 0), TaskState::Failed),
    ]);
    assert_eq!(used(), ([2, 0, 0], vec![1, 1]), "what holds nothing, or is not moved, gives nothing back");
}

fn a_queued_task_starts_once(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let leases: Vec<LeaseRef> = world.admit(&ids).iter().map(TaskRecord::lease_ref).collect();
    let mut expected = world.task(ids[0]);
    expected.state = TaskState::Running;
    expected.started_at = Some(at(33));
    expected.first_started_at = Some(at(33));
    let twice = [leases[0], leases[0]];
    assert_eq!(world.start(&twice, at(33)), [true, false]);
    assert_eq!(world.task(ids[0]), expected);
    assert_eq!(world.start(&leases, at(44)), [false, true]);
    assert_eq!(world.task(ids[0]), expected, "a second start changes nothing");
}

fn a_start_tells_whose_attempts_are_recorded(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("recorded").attempts_as_runs(true), task("plain")]);
    let mut leases: Vec<LeaseRef> = world.admit(&ids).iter().map(TaskRecord::lease_ref).collect();
    leases.push(LeaseRef::new(TaskId(i64::MAX), 1));
    let started = world.write(|tx| tx.start_if_queued(&leases, at(20)));
    assert_eq!(started, [Some(Started::new(true)), Some(Started::new(false)), None]);
}

fn a_start_needs_the_epoch(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let lease = world.admit(&ids[..1])[0].lease_ref();
    world.shift(&[to(lease, TaskState::Scheduled)]);
    let again = world.admit(&ids[..1])[0].lease_ref();
    let before = world.read(|tx| tx.tasks_by_id(&ids));
    let wrong = [
        lease,
        LeaseRef::new(ids[0], again.epoch + 1),
        LeaseRef::new(ids[0], i64::MIN),
        LeaseRef::new(ids[1], 0),
        LeaseRef::new(TaskId(i64::MAX), 1),
    ];
    assert_eq!(world.start(&wrong, at(40)), [false; 5]);
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), before);
    assert_eq!(world.start(&[again], at(40)), [true]);
}

fn the_first_start_is_kept(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    world.shift(&[to(lease, TaskState::Scheduled)]);
    let lease = world.admit(&[id])[0].lease_ref();
    world.start(&[lease], at(90));
    let task = world.task(id);
    assert_eq!((task.first_started_at, task.started_at), (Some(at(20)), Some(at(90))));
}

/// Of a task that never ran, of one that ran, of one that ended after the instant of the grant, and of one whose
/// attempts are recorded.
fn a_started_grant_is_a_grant_and_a_start(store: &dyn Store) {
    let world = World(store);
    let recorded = task("recorded").attempts_as_runs(true);
    let ids = world.insert(&[task("new"), task("again"), task("late"), recorded]);
    let leases = world.run(&ids[1..3]);
    let mut late = to(leases[1], TaskState::Scheduled);
    late.ended_at = Some(at(200));
    world.shift(&[to(leases[0], TaskState::Scheduled), late]);
    let holder = holder("h");
    let batch = GrantBatch::new(&ids, &holder, at(100), at(900));
    let mut apart = Vec::new();
    let undone: Result<()> = store.write_raw(|tx| {
        let granted = tx.grant_if_open(&batch)?.tasks;
        let leases: Vec<LeaseRef> = granted[..3].iter().map(TaskRecord::lease_ref).collect();
        tx.start_if_queued(&leases, at(100))?;
        apart = tx.tasks_by_id(&ids)?;
        Err(Error::abort("the same once more"))
    });
    assert!(undone.is_err());
    let granted = world.write(|tx| tx.grant_if_open(&batch.started()));
    assert_eq!(granted.tasks.iter().cloned().map(Some).collect::<Vec<_>>(), apart);
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), apart, "as it was answered");
    let states: Vec<_> = granted.tasks.iter().map(|task| task.state).collect();
    assert_eq!(states, [TaskState::Running, TaskState::Running, TaskState::Running, TaskState::Queued]);
}
