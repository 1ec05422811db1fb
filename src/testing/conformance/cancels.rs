//! Deadlines of leases whose tasks were cancelled.

use super::world::{World, at, to};
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::store::Store;
use crate::task::TaskState;

cases!("cancels":
    a_cancel_cuts_the_lease_to_its_deadline,
    a_deadline_never_rises,
    a_cancel_needs_the_lease_of_the_epoch,
    a_cancel_needs_a_lease,
    no_renewal_outlasts_the_deadline,
    what_was_renewed_before_is_cut_too,
    a_start_and_an_end_know_no_deadline,
    a_move_clears_the_deadline,
);

fn a_cancel_cuts_the_lease_to_its_deadline(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let queued = world.admit(&ids[..1])[0].lease_ref();
    let running = world.run(&ids[1..2])[0];
    let mut expected = world.read(|tx| tx.tasks_by_id(&ids));
    let leases = [running, LeaseRef::new(TaskId(i64::MAX), 1), queued, running];
    let answers = world.write(|tx| tx.cancel_if_leased(&leases, at(500), "why"));
    assert_eq!(answers, [Some(at(500)), None, Some(at(500)), Some(at(500))]);
    for task in expected.iter_mut().take(2).flatten() {
        task.message = Some("why".into());
        let lease = task.lease.as_mut().unwrap();
        (lease.cancel_at, lease.expires_at) = (Some(at(500)), at(500));
    }
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), expected, "nothing else changes");
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(at(500)));
    assert_eq!(world.write(|tx| tx.hold_expired(at(499), 9)), []);
    assert_eq!(world.write(|tx| tx.hold_expired(at(500), 9)).len(), 2);
}

fn a_deadline_never_rises(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    // Beyond the lease: it lasts as long as before.
    for (deadline, message, expected) in [
        (2000, "one", 2000),
        (2001, "two", 2000),
        (2000, "three", 2000),
        (1500, "four", 1500),
        (900, "five", 900),
    ] {
        let answers = world.write(|tx| tx.cancel_if_leased(&[lease], at(deadline), message));
        assert_eq!(answers, [Some(at(expected))], "{message}");
        let task = world.task(id);
        let lease = task.lease.unwrap();
        assert_eq!(
            (lease.cancel_at, lease.expires_at),
            (Some(at(expected)), at(expected.min(1000))),
            "{message}"
        );
        let counts = if deadline > expected || message == "three" { "one" } else { message };
        assert_eq!(task.message.as_deref(), Some(counts), "the reason goes with the deadline");
    }
}

fn a_cancel_needs_the_lease_of_the_epoch(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let old = world.run(&[id])[0];
    world.shift(&[to(old, TaskState::Scheduled)]);
    let new = world.run(&[id])[0];
    let before = world.task(id);
    let wrong = [old, LeaseRef::new(id, new.epoch + 1), LeaseRef::new(id, 0)];
    assert_eq!(world.write(|tx| tx.cancel_if_leased(&wrong, at(5), "no")), [None; 3]);
    assert_eq!(world.task(id), before);
}

fn a_cancel_needs_a_lease(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["ready", "ended", "sensing", "retry"]);
    let leases = world.run(&ids[1..]);
    let mut retry = to(leases[2], TaskState::UpForRetry);
    retry.due = Some(at(70));
    world.shift(&[to(leases[0], TaskState::Success), to(leases[1], TaskState::Sensing), retry]);
    let before = world.read(|tx| tx.tasks_by_id(&ids));
    let all = [&[LeaseRef::new(ids[0], 0)], &leases[..]].concat();
    assert_eq!(world.write(|tx| tx.cancel_if_leased(&all, at(5), "no")), [None; 4]);
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), before);
}

fn no_renewal_outlasts_the_deadline(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let leases = world.run(&ids);
    world.write(|tx| tx.cancel_if_leased(&leases[..1], at(3000), "why"));
    for (until, expected) in [(2000, 2000), (4000, 3000), (9000, 3000), (10, 3000)] {
        let renewals = world.write(|tx| tx.renew_if_leased(&leases, at(until)));
        assert_eq!(renewals, [Renewal::Cancelled(at(3000)), Renewal::Renewed]);
        assert_eq!(world.task(ids[0]).lease.unwrap().expires_at, at(expected), "until {until}");
    }
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(at(3000)));
    assert_eq!(world.write(|tx| tx.hold_expired(at(2999), 9)), []);
    let expired = world.write(|tx| tx.hold_expired(at(3000), 9));
    assert_eq!(expired, [world.task(ids[0])], "however often it was renewed");
}

fn what_was_renewed_before_is_cut_too(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let leases = world.run(&ids);
    world.write(|tx| tx.renew_if_leased(&leases, at(5000)));
    world.write(|tx| tx.cancel_if_leased(&leases[..1], at(900), "sooner than it was granted for"));
    world.write(|tx| tx.cancel_if_leased(&leases[1..2], at(4000), "later"));
    let expiries =
        |world: World<'_>| ids.iter().map(|id| world.task(*id).lease.unwrap().expires_at).collect::<Vec<_>>();
    assert_eq!(expiries(world), [at(900), at(4000), at(5000)]);
    // They look in turn: what they saw of one lease tells nothing of the others.
    for (now, held) in [(899, 0), (900, 1), (3999, 1), (4000, 2), (4999, 2), (5000, 3)] {
        let expired = world.write(|tx| tx.hold_expired(at(now), 9));
        assert_eq!(expired.iter().map(|task| task.id).collect::<Vec<_>>(), ids[..held], "at {now}");
    }
    assert_eq!(expiries(world), [at(900), at(4000), at(5000)]);
    world.shift(&[to(leases[0], TaskState::Cancelled)]);
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(at(4000)));
}

fn a_start_and_an_end_know_no_deadline(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a"]);
    let lease = world.admit(&ids)[0].lease_ref();
    world.write(|tx| tx.cancel_if_leased(&[lease], at(500), "why"));
    assert_eq!(world.start(&[lease], at(60)), [true]);
    let task = world.task(ids[0]);
    assert_eq!((task.state, task.lease.unwrap().cancel_at), (TaskState::Running, Some(at(500))));
    assert_eq!(world.shift(&[to(lease, TaskState::Success)]), [true]);
    let task = world.task(ids[0]);
    assert_eq!((task.state, task.lease, task.message), (TaskState::Success, None, None));
}

fn a_move_clears_the_deadline(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    world.write(|tx| tx.cancel_if_leased(&[lease], at(500), "why"));
    world.shift(&[to(lease, TaskState::Cancelled)]);
    assert_eq!(world.task(id).state, TaskState::Cancelled);
    world.shift(&[to(lease, TaskState::Scheduled)]);
    let next = world.admit(&[id])[0].clone();
    let lease = next.lease.clone().unwrap();
    assert_eq!((lease.cancel_at, lease.expires_at), (None, at(1000)));
    assert_eq!(world.write(|tx| tx.renew_if_leased(&[next.lease_ref()], at(2000))), [Renewal::Renewed]);
}
