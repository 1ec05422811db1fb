//! Renewing leases, and finding those that expired.

use super::steps::Steps;
use super::world::{World, at, holder, task, to};
use crate::id::Holder;
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::store::contract::{Held, Move, Wait};
use crate::store::{Inserted, Store};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

cases!("leases":
    no_instant_of_a_task_is_recorded_before_one_that_it_has,
    a_renewal_sets_the_expiry,
    an_expiry_never_falls,
    an_expired_lease_can_be_renewed,
    a_renewal_needs_the_epoch,
    a_renewal_needs_a_lease,
    a_note_is_returned_with_its_lease,
    a_note_needs_a_lease_of_its_epoch_and_goes_with_it,
    a_lease_is_expired_from_its_expiry_on,
    expired_come_earliest_first_then_by_number,
    expired_are_limited,
    next_expiry_is_the_earliest_lease,
    a_holder_finds_its_leases_page_by_page,
    a_lease_is_of_its_holder_until_it_ends,
);

fn expiry(task: &TaskRecord) -> Timestamp {
    task.lease.as_ref().expect("a lease").expires_at
}

fn no_instant_of_a_task_is_recorded_before_one_that_it_has(store: &dyn Store) {
    let world = World(store);
    let h = holder("h");
    let inserts =
        [task("a"), task("b").not_before(at(70))].map(|task| task.check(at(50)).expect("a sound task"));
    let inserted = world.write(|tx| tx.insert_tasks_if_absent(&inserts));
    let [Inserted::New(a), Inserted::New(b)] = inserted[..] else { panic!("{inserted:?}") };
    world.write(|tx| tx.promote_due(at(70)));
    let grant = |now| {
        let granted = world.write(|tx| tx.grant_if_ready(&[a, b], &h, at(now), at(1000)));
        granted.iter().map(TaskRecord::lease_ref).collect::<Vec<_>>()
    };
    let start = |leases: &[LeaseRef], now| world.start(leases, at(now));
    let queued = || [a, b].map(|id| world.task(id).queued_at);
    let started = || [a, b].map(|id| world.task(id)).map(|task| (task.first_started_at, task.started_at));

    let leases = grant(40);
    assert_eq!(queued(), [Some(at(50)), Some(at(70))], "not before it was enqueued, or came due");
    assert_eq!(start(&leases, 60), [true; 2]);
    let at_60 = (Some(at(60)), Some(at(60)));
    assert_eq!(started(), [at_60, (Some(at(70)), Some(at(70)))], "not before it was queued");

    let mut back = [to(leases[0], TaskState::Scheduled), to(leases[1], TaskState::UpForRetry)];
    (back[1].due, back[1].ended_at) = (Some(at(65)), Some(at(90)));
    world.write(|tx| tx.move_if(&back));
    assert_eq!(world.task(b).ready_at, at(90), "it is due before its attempt ended: ready when that ended");
    world.write(|tx| tx.promote_due(at(65)));
    let leases = grant(45);
    assert_eq!(
        queued(),
        [Some(at(60)), Some(at(90))],
        "not before the attempt that was given back, or ended"
    );
    assert_eq!(start(&leases, 95), [true; 2]);
    assert_eq!(started(), [(Some(at(60)), Some(at(95))), (Some(at(70)), Some(at(95)))], "later is as it is");
    let ends: Vec<Move> = leases.iter().map(|lease| to(*lease, TaskState::Success)).collect();
    world.write(|tx| tx.move_if(&ends));
}

fn a_renewal_sets_the_expiry(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let queued = world.admit(&ids[..1])[0].lease_ref();
    let running = world.run(&ids[1..2])[0];
    let mut expected = world.read(|tx| tx.tasks_by_id(&ids));
    let unknown = LeaseRef::new(TaskId(i64::MAX), 1);
    let answers = world.write(|tx| tx.renew_if_leased(&[running, unknown, queued], at(5000)));
    assert_eq!(answers, [Renewal::Renewed, Renewal::Lost, Renewal::Renewed]);
    for task in expected.iter_mut().take(2).flatten() {
        task.lease.as_mut().unwrap().expires_at = at(5000);
    }
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), expected, "nothing else changes");
}

/// A holder whose clock is behind shortens nothing, and learns that its lease holds.
fn an_expiry_never_falls(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    for (until, expected) in
        [(at(999), at(1000)), (at(-5), at(1000)), (at(1001), at(1001)), (at(1000), at(1001))]
    {
        let before = world.task(id);
        assert_eq!(world.write(|tx| tx.renew_if_leased(&[lease], until)), [Renewal::Renewed], "{until:?}");
        let after = world.task(id);
        assert_eq!(expiry(&after), expected, "{until:?}");
        assert!(after == before || expected == until, "nothing else changes: {after:?}");
    }
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(at(1001)));
    assert_eq!(world.write(|tx| tx.hold_expired(at(1000), 9)), [], "nor does what upkeep goes by");
}

fn an_expired_lease_can_be_renewed(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.admit_until(&[id], at(11))[0].lease_ref();
    assert_eq!(world.write(|tx| tx.hold_expired(at(12), 9)).len(), 1);
    assert_eq!(world.write(|tx| tx.renew_if_leased(&[lease], at(99))), [Renewal::Renewed]);
    assert_eq!(world.write(|tx| tx.hold_expired(at(98), 9)), []);
}

fn a_renewal_needs_the_epoch(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let old = world.run(&[id])[0];
    world.shift(&[to(old, TaskState::Scheduled)]);
    let new = world.run(&[id])[0];
    let wrong = [old, LeaseRef::new(id, new.epoch + 1), LeaseRef::new(id, 0)];
    assert_eq!(world.write(|tx| tx.renew_if_leased(&wrong, at(9999))), [Renewal::Lost; 3]);
    assert_eq!(expiry(&world.task(id)), at(1000), "a stale holder prolongs nothing");
    assert_eq!(world.write(|tx| tx.renew_if_leased(&[new], at(9999))), [Renewal::Renewed]);
}

fn a_note_is_returned_with_its_lease(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["noted", "silent"]);
    let queued = world.admit(&ids[..1])[0].lease_ref();
    world.run(&ids[1..]);
    let mut expected = world.read(|tx| tx.tasks_by_id(&ids));
    let note = |at, text: &str| world.write(|tx| tx.note_if_leased(&[(queued, at, text.into())]));
    // The latest that is written counts, whatever its instant. Any text comes back.
    for (at, text) in [(at(70), "half"), (at(60), "\u{1a}1\0\u{1a}é\n"), (at(80), "")] {
        assert_eq!(note(at, text), [true]);
        let lease = expected[0].as_mut().unwrap().lease.as_mut().unwrap();
        (lease.note, lease.noted_at) = (Some(text.into()), Some(at));
        assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), expected, "nothing else changes");
    }
    world.start(&[queued], at(75));
    world.write(|tx| tx.renew_if_leased(&[queued], at(1001)));
    world.write(|tx| tx.cancel_if_leased(&[queued], at(1000), "why"));
    let noted = world.task(queued.id);
    let lease = noted.lease.clone().unwrap();
    assert_eq!((lease.note, lease.noted_at), (Some(String::new()), Some(at(80))), "it stays with the lease");
    let keys = [noted.key.clone()];
    assert_eq!(world.read(|tx| tx.tasks(&keys)), [Some(noted.clone())]);
    let held = lease.holder;
    assert_eq!(world.read(|tx| tx.leases_of(&held, None, 1)), std::slice::from_ref(&noted));
    assert_eq!(world.write(|tx| tx.hold_expired(at(1000), 1)), std::slice::from_ref(&noted));
    let held = world.write(|tx| tx.hold_tasks(&[noted.id], Wait::ForOthers));
    assert_eq!(held, [Held::Task(Box::new(noted))]);
}

fn a_note_needs_a_lease_of_its_epoch_and_goes_with_it(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["again", "ended", "sensing", "ready"]);
    let leases = world.run(&ids[..3]);
    let note = |leases: &[LeaseRef]| {
        let notes: Vec<_> = leases.iter().map(|lease| (*lease, at(70), "half".to_owned())).collect();
        world.write(|tx| tx.note_if_leased(&notes))
    };
    assert_eq!(note(&leases), [true; 3]);
    world.shift(&[
        to(leases[0], TaskState::Scheduled),
        Move { ended_at: Some(at(80)), ..to(leases[1], TaskState::Success) },
        to(leases[2], TaskState::Sensing),
    ]);
    assert_eq!(note(&leases), [false; 3]);
    assert_eq!(note(&[LeaseRef::new(ids[3], 0), LeaseRef::new(TaskId(i64::MAX), 1)]), [false; 2]);
    let new = world.run(&ids[..1])[0];
    assert_eq!(world.task(new.id).lease.unwrap().note, None, "the next holder has said nothing");
    assert_eq!(note(&[leases[0], new, LeaseRef::new(new.id, new.epoch + 1)]), [false, true, false]);
    assert_eq!(world.task(new.id).lease.unwrap().note.as_deref(), Some("half"));
    world.shift(&[to(new, TaskState::Success)]);
    assert_eq!(world.write(|tx| tx.delete_if(&[(new, TaskState::Success)])), [true]);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(9_999), at(9_999), 9)), 1);
}

fn a_renewal_needs_a_lease(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["ready", "ended", "sensing", "retry"]);
    let leases = world.run(&ids[1..]);
    let mut retry = to(leases[2], TaskState::UpForRetry);
    retry.due = Some(at(70));
    world.shift(&[to(leases[0], TaskState::Success), to(leases[1], TaskState::Sensing), retry]);
    let all = [&[LeaseRef::new(ids[0], 0)], &leases[..]].concat();
    assert_eq!(world.write(|tx| tx.renew_if_leased(&all, at(9999))), [Renewal::Lost; 4]);
    for id in ids {
        assert_eq!(world.task(id).lease, None);
    }
}

fn a_lease_is_expired_from_its_expiry_on(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    world.admit(&ids);
    assert_eq!(world.write(|tx| tx.hold_expired(at(999), 9)), [], "one microsecond early");
    let expired = world.write(|tx| tx.hold_expired(at(1000), 9));
    let expected: Vec<TaskRecord> = ids.iter().map(|id| world.task(*id)).collect();
    assert_eq!(expired, expected, "at the instant itself, whole records");
    world.shift(&[to(expired[0].lease_ref(), TaskState::Failed)]);
    assert_eq!(
        world.write(|tx| tx.hold_expired(at(9999), 9)),
        expected[1..],
        "an ended lease is not expired"
    );
}

fn spread(world: World<'_>) -> Vec<TaskId> {
    let ids = world.plain(&["a", "b", "c", "d", "e"]);
    for (id, expires) in ids.iter().zip([40, 20, 30, 20, 10]) {
        world.admit_until(&[*id], at(expires));
    }
    [4, 1, 3, 2, 0].map(|index: usize| ids[index]).to_vec()
}

fn expired_come_earliest_first_then_by_number(store: &dyn Store) {
    let world = World(store);
    let expected = spread(world);
    for (now, count) in [(9, 0), (10, 1), (19, 1), (20, 3), (39, 4), (40, 5)] {
        let found = world.write(|tx| tx.hold_expired(at(now), 99));
        assert_eq!(found.iter().map(|task| task.id).collect::<Vec<_>>(), expected[..count], "at {now}");
    }
}

fn expired_are_limited(store: &dyn Store) {
    let world = World(store);
    let expected = spread(world);
    for limit in 0..6 {
        let found = world.write(|tx| tx.hold_expired(at(99), limit));
        assert_eq!(found.iter().map(|task| task.id).collect::<Vec<_>>(), expected[..limit.min(5)]);
    }
    assert_eq!(world.write(|tx| tx.hold_expired(at(99), usize::MAX)).len(), 5, "any limit is taken");
}

fn next_expiry_is_the_earliest_lease(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.next_expiry()), None);
    let order = spread(world);
    for (id, expires) in order.iter().zip([10, 20, 20, 30, 40]) {
        assert_eq!(world.read(|tx| tx.next_expiry()), Some(at(expires)));
        let lease = world.task(*id).lease_ref();
        world.shift(&[to(lease, TaskState::Success)]);
    }
    assert_eq!(world.read(|tx| tx.next_expiry()), None);
}

/// Grants these tasks to this holder.
fn grant_to(world: World<'_>, name: &str, ids: &[TaskId]) -> Vec<LeaseRef> {
    let holder = holder(name);
    let granted = world.write(|tx| tx.grant_if_ready(ids, &holder, at(10), at(1000)));
    granted.iter().map(TaskRecord::lease_ref).collect()
}

fn a_holder_finds_its_leases_page_by_page(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d", "e", "f"]);
    // Not in the order of their numbers, and those of another holder between them.
    for (name, granted) in [("me", vec![ids[4], ids[0]]), ("you", vec![ids[1]]), ("me", vec![ids[2]])] {
        grant_to(world, name, &granted);
    }
    let (me, you) = (holder("me"), holder("you"));
    let page = |of: &Holder, after, limit| -> Vec<TaskId> {
        world.read(|tx| tx.leases_of(of, after, limit)).iter().map(|task| task.id).collect()
    };
    assert_eq!(page(&me, None, 9), [ids[0], ids[2], ids[4]], "by number");
    assert_eq!(page(&you, None, usize::MAX), [ids[1]]);
    assert_eq!(page(&holder("m"), None, 9), [], "a name is not the beginning of another");
    assert_eq!(page(&me, None, 2), ids[..3].iter().copied().step_by(2).collect::<Vec<_>>());
    assert_eq!(page(&me, Some(ids[2]), 2), [ids[4]]);
    assert_eq!(page(&me, Some(ids[1]), 1), [ids[2]], "behind a task that is of another");
    assert_eq!((page(&me, Some(ids[4]), 9), page(&me, None, 0)), (vec![], vec![]));
    let found = world.read(|tx| tx.leases_of(&me, None, 9));
    let mine = page(&me, None, 9);
    let tasks: Vec<TaskRecord> = world.read(|tx| tx.tasks_by_id(&mine)).into_iter().flatten().collect();
    assert_eq!(found, tasks, "the records are as they are found by number");
}

fn a_lease_is_of_its_holder_until_it_ends(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["ended", "given back", "running", "sensing", "renewed"]);
    let leases = grant_to(world, "me", &ids);
    world.start(&leases[..4], at(20));
    let me = holder("me");
    let mine = || world.read(|tx| tx.leases_of(&me, None, 9));
    assert_eq!(mine().len(), 5);
    world.write(|tx| tx.renew_if_leased(&leases[4..], at(5000)));
    world.shift(&[
        to(leases[0], TaskState::Success),
        to(leases[1], TaskState::Scheduled),
        to(leases[3], TaskState::Sensing),
    ]);
    let left = mine();
    assert_eq!(left.iter().map(|task| task.id).collect::<Vec<_>>(), [ids[2], ids[4]]);
    assert_eq!(
        left.iter().map(|task| task.state).collect::<Vec<_>>(),
        [TaskState::Running, TaskState::Queued]
    );
    assert_eq!(left.iter().map(expiry).collect::<Vec<_>>(), [at(1000), at(5000)], "as it was renewed");
    grant_to(world, "you", &ids[1..2]);
    assert_eq!(mine().len(), 2, "what another holder was given since is its own");
}
