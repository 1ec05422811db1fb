//! Caps on what waits.

use super::world::{World, at, limit, rows, sensor, task, to};
use crate::admission::limits::LimitSpec;
use crate::admission::{Subject, WaitingCap};
use crate::id::QueueName;
use crate::store::contract::{CapUse, Move};
use crate::store::{Inserted, Store};
use crate::task::{NewTask, TaskState};

cases!("caps":
    caps_are_put_changed_and_lifted,
    what_waits_is_counted,
    the_cap_of_a_key_is_its_own_or_that_of_its_family,
    nothing_is_inserted_where_a_cap_may_hold,
    a_call_of_many_needs_counts_each_once,
);

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn of_queue(name: &str) -> Subject {
    Subject::Queue(queue(name))
}

fn cap(most: u32) -> WaitingCap {
    WaitingCap::new(most).unwrap()
}

fn counted(subject: Subject, most: u32, waiting: u64) -> CapUse {
    CapUse::new(subject, cap(most), waiting)
}

fn held(world: World<'_>, tasks: &[NewTask]) -> Vec<CapUse> {
    world.write(|tx| tx.hold_caps(&rows(tasks)))
}

fn caps_are_put_changed_and_lifted(store: &dyn Store) {
    let world = World(store);
    let put = |caps: &[(Subject, Option<WaitingCap>)]| world.write(|tx| tx.put_caps(caps));
    let (gpu, key, family) = (of_queue("gpu"), Subject::Key(limit("ü")), Subject::Family(limit("Z")));
    let strict = cap(i32::MAX as u32).strict(true);
    let first = [(family.clone(), Some(cap(0))), (key.clone(), Some(strict)), (gpu.clone(), Some(cap(7)))];
    assert_eq!(put(&first), [false, false, false]);
    let all = || world.read(|tx| tx.caps());
    assert_eq!(all(), [(gpu.clone(), cap(7)), (key.clone(), strict), (family.clone(), cap(0))]);

    // The last of each counts, and each result reflects what the one before it left.
    let same = Subject::Key(limit("gpu"));
    let changes = [
        (gpu.clone(), None),
        (gpu.clone(), Some(cap(8))),
        (key.clone(), Some(cap(3))),
        (same.clone(), None),
        (same, None),
        (gpu.clone(), Some(cap(9))),
        (family, None),
    ];
    assert_eq!(put(&changes), [true, false, true, false, false, true, true]);
    assert_eq!(all(), [(gpu, cap(9)), (key, cap(3))]);
    assert_eq!(put(&[]), [] as [bool; 0]);
}

fn what_waits_is_counted(store: &dyn Store) {
    let world = World(store);
    let (gpu, k) = (of_queue("gpu"), Subject::Key(limit("k")));
    world.write(|tx| tx.put_limits(&[LimitSpec::of(limit("k"))]));
    world.write(|tx| tx.put_caps(&[(gpu.clone(), Some(cap(2))), (k.clone(), Some(cap(50)))]));
    let of_both = |name: &str| task(name).queue(queue("gpu")).limit_count(limit("k"), 9);
    let asked = [of_both("asked")];
    let waiting = || held(world, &asked).iter().map(|cap| cap.waiting).collect::<Vec<_>>();
    assert_eq!(held(world, &asked), [counted(gpu.clone(), 2, 0), counted(k.clone(), 50, 0)]);
    assert_eq!(held(world, &[task("elsewhere").limit(limit("x"))]), []);

    let ids = world.insert(&[
        of_both("runs"),
        of_both("senses"),
        of_both("ends"),
        of_both("retries"),
        of_both("later").not_before(at(50)),
        task("gpu").queue(queue("gpu")),
        task("key").limit(limit("k")).limit(limit("other")),
        task("neither"),
    ]);
    assert_eq!(waiting(), [6, 6], "ready, and not yet due; each once, however much it counts");
    let leases = world.run(&ids[..4]);
    assert_eq!(waiting(), [2, 2], "what has a lease does not wait");
    world.end(&leases[2..3]);
    world.write(|tx| {
        tx.move_if(&[to(leases[1], TaskState::Sensing)])?;
        tx.put_sensors(&[sensor(leases[1], "x").insert(at(30))])
    });
    assert_eq!(waiting(), [2, 2], "nor does what senses or has ended");
    let retry = Move { due: Some(at(90)), ..to(leases[3], TaskState::UpForRetry) };
    world.shift(&[retry, to(leases[0], TaskState::Scheduled)]);
    assert_eq!(waiting(), [4, 4], "what is tried again waits, beyond the cap, too");
    world.shift(&[to(leases[1], TaskState::Scheduled), to(leases[2], TaskState::Scheduled)]);
    assert_eq!(waiting(), [6, 6], "and what goes on, or was cleared");
    world.shift(&[to(leases[2], TaskState::Cancelled)]);
    assert_eq!(waiting(), [5, 5]);

    // In the transaction that changes it, too.
    let seen = world.write(|tx| {
        tx.insert_tasks_if_absent(&rows(&[of_both("more")]))?;
        tx.hold_caps(&rows(&asked))
    });
    assert_eq!(seen, [counted(gpu, 2, 6), counted(k, 50, 6)]);
}

fn the_cap_of_a_key_is_its_own_or_that_of_its_family(store: &dyn Store) {
    let world = World(store);
    let family = |prefix: &str| LimitSpec::of(limit(prefix)).family();
    let own = |key: &str| LimitSpec::of(limit(key));
    let specs = [family("t/"), family("t/free/"), family("größe"), own("t/exempt"), own("t/own"), own("t")];
    world.write(|tx| tx.put_limits(&specs));
    let caps = [
        (Subject::Family(limit("t/")), Some(cap(5))),
        (Subject::Family(limit("größe")), Some(cap(7))),
        (Subject::Key(limit("t/own")), Some(cap(6))),
        (of_queue("t/a"), Some(cap(1))),
    ];
    world.write(|tx| tx.put_caps(&caps));
    let keys = ["t/own", "t", "t/", "t/free/x", "t/exempt", "t/b", "t/a", "u", "größe", "größen"];
    let task = keys.iter().fold(task("all"), |task, key| task.limit(limit(key)));
    world.insert(&[
        super::world::task("1").limit(limit("t/b")),
        super::world::task("2").limit(limit("t/own")),
    ]);
    let key = |name: &str| Subject::Key(limit(name));
    let expected = [
        counted(key("größen"), 7, 0),
        counted(key("t/a"), 5, 0),
        counted(key("t/b"), 5, 1),
        counted(key("t/own"), 6, 1),
    ];
    assert_eq!(held(world, std::slice::from_ref(&task)), expected);
    world.write(|tx| tx.delete_limits(&[limit("t/exempt")]));
    let found = held(world, &[task]);
    assert_eq!(found.len(), 5, "a key that is not defined any more is of its family again: {found:?}");
}

fn nothing_is_inserted_where_a_cap_may_hold(store: &dyn Store) {
    let world = World(store);
    let insert = |tasks: &[NewTask]| world.write(|tx| tx.insert_tasks_if_uncapped(&rows(tasks)));
    let inserted = insert(&[task("a"), task("b")]).expect("no cap");
    assert!(matches!(inserted[..], [Inserted::New(_), Inserted::New(_)]), "{inserted:?}");
    world.write(|tx| tx.put_limits(&[LimitSpec::of(limit("k")), LimitSpec::of(limit("f")).family()]));
    let caps = [of_queue("default"), Subject::Key(limit("k")), Subject::Family(limit("f"))];
    let elsewhere = |name: &str| task(name).queue(queue("other"));
    let capped = [task("c"), elsewhere("c").limit(limit("k")), elsewhere("c").limit(limit("f1"))];
    for (subject, capped) in caps.into_iter().zip(capped) {
        world.write(|tx| tx.put_caps(&[(subject.clone(), Some(cap(1_000)))]));
        assert_eq!(insert(std::slice::from_ref(&capped)), None, "{subject}");
        assert_eq!(insert(&[elsewhere("d"), capped.clone(), elsewhere("e")]), None, "{subject}");
        let names = ["c", "d", "e"].map(super::world::key);
        assert_eq!(world.read(|tx| tx.tasks(&names)), [None, None, None]);
        assert_eq!(world.write(|tx| tx.put_caps(&[(subject.clone(), None)])), [true]);
    }
    assert!(insert(&[task("c").limit(limit("k"))]).is_some());
    // What refuses is not the store.
    world.write(|tx| tx.put_caps(&[(of_queue("default"), Some(cap(0)))]));
    world.insert(&[task("d")]);
}

fn a_call_of_many_needs_counts_each_once(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_caps(&[(of_queue("gpu"), Some(cap(3))), (of_queue("cpu"), Some(cap(4)))]));
    let of = |name: &str, to: &str| task(name).queue(queue(to));
    let tasks = [
        of("1", "gpu"),
        of("2", "gpu").pool_slots(2),
        of("3", "gpu").limit(limit("x")),
        of("4", "cpu"),
        of("5", "free"),
        task("6"),
    ];
    world.insert(&tasks);
    let expected = [counted(of_queue("cpu"), 4, 1), counted(of_queue("gpu"), 3, 3)];
    assert_eq!(held(world, &tasks), expected);
}
