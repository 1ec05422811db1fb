//! Inserting tasks and finding them.

use super::steps::Steps;
use super::world::{World, at, key, limit, pool, rows, task};
use crate::lease::TaskId;
use crate::store::{Inserted, Store};
use crate::task::{LeaseLoss, TaskRecord, TaskState};

cases!("tasks":
    a_new_task_is_stored_as_it_was_inserted,
    numbers_rise_in_the_order_of_the_arguments,
    a_key_that_exists_changes_nothing,
    a_key_named_twice_is_inserted_once,
    keys_differ_in_every_part,
    found_by_key_in_the_order_of_the_arguments,
    found_by_number_in_the_order_of_the_arguments,
    due_tasks_are_promoted_at_their_instant,
    all_that_is_due_is_promoted,
    a_retry_is_promoted_too,
    next_due_is_the_earliest,
);

fn a_new_task_is_stored_as_it_was_inserted(store: &dyn Store) {
    let world = World(store);
    let full = task("full")
        .pool(pool("db"))
        .pool_slots(3)
        .priority(-7)
        .logical_date(at(-5))
        .not_before(at(77))
        .limit(limit("b"))
        .limit(limit("a"))
        .lease_loss(LeaseLoss::Requeue { at_most: 4 })
        .attempts_as_runs(true)
        .payload("what to do");
    let mut mapped = task("mapped");
    mapped.key = mapped.key.mapped(0);
    let news = [full, task("bare"), mapped];
    let ids = world.insert(&news);
    for (id, new) in ids.iter().zip(&news) {
        let stored = TaskRecord::inserted(*id, new.check(at(0)).unwrap());
        assert_eq!(world.task(*id), stored);
        assert_eq!(world.read(|tx| tx.tasks(std::slice::from_ref(&new.key))), [Some(stored)]);
    }
    assert_eq!(world.ready(), 2, "a task with a due instant is not ready");
}

fn numbers_rise_in_the_order_of_the_arguments(store: &dyn Store) {
    let world = World(store);
    let mut ids = world.plain(&["d", "a", "c", "b"]);
    ids.extend(world.plain(&["0", "z"]));
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
}

fn a_key_that_exists_changes_nothing(store: &dyn Store) {
    let world = World(store);
    let old = world.plain(&["a"])[0];
    let before = world.task(old);
    let again = [task("b"), task("a").priority(9).pool(pool("db")).limit(limit("l")).payload("x"), task("c")];
    let answers = world.write(|tx| tx.insert_tasks_if_absent(&rows(&again)));
    assert_eq!(answers[1], Inserted::Exists(old));
    assert!(
        matches!(answers[..], [Inserted::New(b), _, Inserted::New(c)] if old < b && b < c),
        "{answers:?}"
    );
    assert_eq!(world.task(old), before);
    assert_eq!(world.ready(), 3);
}

fn a_key_named_twice_is_inserted_once(store: &dyn Store) {
    let world = World(store);
    let twice = [task("a").priority(1), task("b"), task("a").priority(2)];
    let answers = world.write(|tx| tx.insert_tasks_if_absent(&rows(&twice)));
    let [Inserted::New(a), Inserted::New(_), Inserted::Exists(again)] = answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(a, again);
    assert_eq!(world.task(a).priority, 1, "the first counts");
    assert_eq!(world.ready(), 2);
}

fn keys_differ_in_every_part(store: &dyn Store) {
    let world = World(store);
    let make = |parts: [&str; 4]| crate::TaskKey::new(parts[0], parts[1], parts[2], parts[3]).unwrap();
    let plain = make(["a", "a", "a", "a"]);
    let keys = [
        plain.clone(),
        plain.clone().mapped(0),
        plain.clone().mapped(1),
        plain.mapped(u32::MAX),
        make(["b", "a", "a", "a"]),
        make(["a", "b", "a", "a"]),
        make(["a", "a", "b", "a"]),
        make(["a", "a", "a", "b"]),
        make(["a", "A", "a", "a"]),
    ];
    let news: Vec<_> = keys.iter().cloned().map(crate::NewTask::new).collect();
    let ids = world.insert(&news);
    let found = world.read(|tx| tx.tasks(&keys));
    let found: Vec<TaskId> = found.into_iter().flatten().map(|task| task.id).collect();
    assert_eq!(found, ids);
}

fn found_by_key_in_the_order_of_the_arguments(store: &dyn Store) {
    let world = World(store);
    world.plain(&["a", "b", "c"]);
    let asked = ["c", "nobody", "a", "b", "c"].map(key);
    let found = world.read(|tx| tx.tasks(&asked));
    assert_eq!(found.len(), 5);
    for (key, task) in asked.iter().zip(found) {
        let expected = (key.task.as_str() != "nobody").then_some(key);
        assert_eq!(task.as_ref().map(|task| &task.key), expected);
    }
}

fn found_by_number_in_the_order_of_the_arguments(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let asked = [ids[2], TaskId(i64::MAX), ids[0], TaskId(-1), ids[2], ids[1]];
    let found = world.read(|tx| tx.tasks_by_id(&asked));
    let found: Vec<Option<TaskId>> = found.into_iter().map(|task| task.map(|task| task.id)).collect();
    assert_eq!(found, [Some(ids[2]), None, Some(ids[0]), None, Some(ids[2]), Some(ids[1])]);
}

fn due_tasks_are_promoted_at_their_instant(store: &dyn Store) {
    let world = World(store);
    let id = world.insert(&[task("a").not_before(at(100))])[0];
    let inserted = world.task(id);
    assert_eq!(world.write(|tx| tx.promote_due(at(99))), 0, "one microsecond early");
    assert_eq!((world.ready(), world.task(id)), (0, inserted.clone()));
    assert_eq!(world.write(|tx| tx.promote_due(at(100))), 1, "at the instant itself");
    let mut ready = inserted;
    ready.due = None;
    assert_eq!((world.ready(), world.task(id)), (1, ready));
    assert_eq!(world.write(|tx| tx.promote_due(at(100))), 0, "once");
    assert_eq!(world.ready(), 1);
}

fn all_that_is_due_is_promoted(store: &dyn Store) {
    let world = World(store);
    let dues = [30, 10, 40, 20, 20, 50];
    let news: Vec<_> = (0..)
        .zip(dues)
        .map(|(n, due)| task(&n.to_string()).not_before(at(due)).pool_slots(due as u32))
        .collect();
    let ids = world.insert(&news);
    let ready = || -> Vec<i64> {
        let tasks = world.read(|tx| tx.tasks_by_id(&ids));
        let ready = tasks.iter().zip(dues).filter(|(task, _)| task.as_ref().unwrap().is_ready());
        ready.map(|(_, due)| due).collect()
    };
    assert_eq!(world.write(|tx| tx.promote_due(at(30))), 4);
    assert_eq!(ready(), [30, 10, 20, 20]);
    assert_eq!(world.write(|tx| tx.promote_due(at(30))), 0);
    assert_eq!(world.write(|tx| tx.promote_due(at(1_000_000))), 2);
    assert_eq!(world.ready(), 6);
}

fn a_retry_is_promoted_too(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let lease = world.run(&[id])[0];
    let mut retry = super::world::to(lease, TaskState::UpForRetry);
    retry.due = Some(at(500));
    world.shift(&[retry]);
    assert_eq!(world.read(|tx| tx.next_due()), Some(at(500)));
    assert_eq!(world.write(|tx| tx.promote_due(at(499))), 0);
    assert_eq!((world.task(id).state, world.ready()), (TaskState::UpForRetry, 0));
    assert_eq!(world.write(|tx| tx.promote_due(at(500))), 1);
    let task = world.task(id);
    assert_eq!((task.state, task.due, world.ready()), (TaskState::Scheduled, None, 1));
    assert_eq!((task.attempt, task.epoch), (1, 1), "promotion is no grant");
}

fn next_due_is_the_earliest(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.next_due()), None);
    world.plain(&["now"]);
    assert_eq!(world.read(|tx| tx.next_due()), None);
    world.insert(&[task("b").not_before(at(9)), task("a").not_before(at(4)), task("c").not_before(at(7))]);
    for due in [4, 7, 9] {
        assert_eq!(world.read(|tx| tx.next_due()), Some(at(due)));
        world.write(|tx| tx.promote_due(at(due)));
    }
    assert_eq!(world.read(|tx| tx.next_due()), None);
}
