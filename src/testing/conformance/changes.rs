//! Changing and deleting tasks that wait.

use std::time::Duration;

use super::steps::Steps;
use super::world::{World, at, key, limit, pool, rows, sized, task, to};
use crate::backoff::RetryPolicy;
use crate::id::QueueName;
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::{Change, LanePage, SurveyQuery};
use crate::store::{Inserted, Store};
use crate::task::{Feed, LeaseLoss, NewTask, TaskRecord, TaskState};

cases!("changes":
    a_change_replaces_what_is_asked_for,
    a_changed_task_waits_in_the_lane_of_its_needs,
    a_changed_task_takes_its_new_place_in_its_lane,
    a_due_instant_comes_and_goes,
    a_retry_stays_one_until_it_is_ready,
    a_change_needs_the_epoch,
    a_change_needs_a_task_that_waits,
    a_task_named_twice_is_changed_once,
    a_deleted_task_leaves_nothing,
    a_deletion_needs_the_epoch,
    a_deletion_needs_a_task_that_waits_or_ended,
    events_outlive_a_task_that_is_deleted,
    a_deleted_key_is_new_again,
);

/// A change of a task to what would be enqueued at instant 0.
fn change(task: &TaskRecord, asked: NewTask) -> Change {
    Change::new(task.lease_ref(), task.state, rows(&[asked]).remove(0))
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// Ready tasks by lane, and in it in order, with what they need.
fn waiting(world: World<'_>) -> Vec<(String, Vec<TaskId>)> {
    world.read(|tx| {
        let lanes = tx.ready_lanes()?;
        lanes
            .iter()
            .map(|lane| {
                let page = tx.candidates(&[LanePage::new(lane.id, None, 99)])?;
                assert_eq!(page.len() as u64, lane.ready, "the counter of {:?}", lane.key);
                let (queue, pool) = (&lane.key.queue, &lane.key.pool);
                Ok((format!("{queue} {pool}"), page.iter().map(|task| task.order.id).collect()))
            })
            .collect()
    })
}

fn a_change_replaces_what_is_asked_for(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let mut moved = to(world.run(&ids[1..2])[0], TaskState::Scheduled);
    (moved.message, moved.value, moved.lost) = (Some("why".into()), Some("what".into()), Some(2));
    (moved.forgive, moved.finished, moved.ended_at) = (1, true, Some(at(40)));
    world.shift(&[moved]);
    let mut expected = world.read(|tx| tx.tasks_by_id(&ids));
    let retry = RetryPolicy::fixed(Duration::from_secs(3)).build().unwrap();
    let asked = |name: &str| {
        let task = task(name).queue(queue("slow")).pool(pool("db")).pool_slots(2).also(pool("gpu"), 3);
        let task = task.limit(limit("one")).limit_count(limit("many"), 4).priority(7).logical_date(at(-5));
        task.retry(retry.clone()).lease_loss(LeaseLoss::Fail).attempts_as_runs(true).payload("new\u{0}\u{1a}")
    };
    let changes = [("a", 0), ("b", 1)].map(|(name, at)| change(expected[at].as_ref().unwrap(), asked(name)));
    assert_eq!(world.write(|tx| tx.change_if(&changes)), [true; 2]);
    for (task, change) in expected.iter_mut().flatten().zip(&changes) {
        let to = change.to.clone();
        (task.lane, task.rank, task.priority) = (to.lane, to.rank, to.priority);
        (task.logical_date, task.retry, task.lease_loss) = (to.logical_date, to.retry, to.lease_loss);
        (task.attempt_runs, task.payload, task.ready_at) = (true, to.payload, at(0));
    }
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), expected, "and nothing else, of no other task");
    let keys = ["a", "b", "c"].map(key);
    assert_eq!(world.read(|tx| tx.tasks(&keys)), expected);
}

fn a_changed_task_waits_in_the_lane_of_its_needs(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 2)]));
    let ids = world.insert(&[task("a").limit(limit("old")), task("b").limit(limit("old")), task("c")]);
    let elsewhere = |name| task(name).queue(queue("slow")).pool(pool("db")).pool_slots(2).limit(limit("new"));
    let known = |name| world.read(|tx| tx.limits(&[limit(name)])).remove(0).is_some();
    // The first made the lane that it leaves.
    let first = change(&world.task(ids[0]), elsewhere("a"));
    assert_eq!(world.write(|tx| tx.change_if(std::slice::from_ref(&first))), [true]);
    let lanes = |expected: [(&str, Vec<TaskId>); 3]| {
        let mut found = waiting(world);
        found.sort();
        let mut expected = expected.map(|(lane, tasks)| (lane.to_owned(), tasks));
        expected.sort();
        assert_eq!(found, expected);
    };
    lanes([
        ("default default_pool", vec![ids[1]]),
        ("default default_pool", vec![ids[2]]),
        ("slow db", vec![ids[0]]),
    ]);
    assert!(known("old") && known("new"));
    // A tick adds up what it finds; the next change comes behind it.
    world.write(|tx| tx.promote_due(at(1)));
    let second = change(&world.task(ids[1]), elsewhere("b"));
    assert_eq!(world.write(|tx| tx.change_if(std::slice::from_ref(&second))), [true]);
    world.write(|tx| tx.promote_due(at(2)));
    let mut found = waiting(world);
    found.sort();
    assert_eq!(
        found,
        [("default default_pool".to_owned(), vec![ids[2]]), ("slow db".to_owned(), ids[..2].to_vec())]
    );
    assert!(known("new") && !known("old"), "no task carries the key any more");
    // It takes what it needs now.
    let lease = world.run(&ids[..1])[0];
    assert_eq!((world.used(&pool("db")), world.used(&pool("default_pool"))), (2, 0));
    assert_eq!(world.task(ids[0]).held_slots, 2);
    let stats = world.read(|tx| tx.limits(&[limit("new")])).remove(0).unwrap();
    assert_eq!(stats.used, 1);
    assert!(!world.admit_if_room(&ids[1..2]));
    world.end(&[lease]);
    assert!(world.admit_if_room(&ids[1..2]));
}

fn a_changed_task_takes_its_new_place_in_its_lane(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d"]);
    // A tick has looked at the lane, and knows where it begins.
    assert_eq!(world.write(|tx| tx.promote_due(at(1))), 0);
    let wanted = [("c", 2, 9), ("a", 0, -1), ("d", 3, 3)];
    let changes =
        wanted.map(|(name, at, priority)| change(&world.task(ids[at]), task(name).priority(priority)));
    assert_eq!(world.write(|tx| tx.change_if(&changes)), [true; 3]);
    let order = vec![ids[2], ids[3], ids[1], ids[0]];
    assert_eq!(waiting(world), [("default default_pool".to_owned(), order.clone())]);
    world.write(|tx| tx.promote_due(at(2)));
    assert_eq!(waiting(world), [("default default_pool".to_owned(), order)]);
    assert_eq!(world.admit(&ids).len(), 4, "each is granted once");
    assert_eq!(world.ready(), 0);
}

fn a_due_instant_comes_and_goes(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("now"), task("later").not_before(at(500))]);
    let due = |id| (world.task(id).state, world.task(id).due, world.task(id).ready_at);
    let mut sooner = change(&world.task(ids[1]), task("later"));
    sooner.ready_at = at(33);
    let changes = [change(&world.task(ids[0]), task("now").not_before(at(300))), sooner];
    assert_eq!(world.write(|tx| tx.change_if(&changes)), [true; 2]);
    assert_eq!(due(ids[0]), (TaskState::Scheduled, Some(at(300)), at(300)));
    assert_eq!(due(ids[1]), (TaskState::Scheduled, None, at(33)));
    assert_eq!(waiting(world), [("default default_pool".to_owned(), vec![ids[1]])]);
    assert_eq!(world.read(|tx| tx.next_due()), Some(at(300)));
    // An earlier instant than any that a tick has seen.
    world.write(|tx| tx.promote_due(at(200)));
    let earlier = change(&world.task(ids[0]), task("now").not_before(at(100)));
    assert_eq!(world.write(|tx| tx.change_if(std::slice::from_ref(&earlier))), [true]);
    assert_eq!(world.read(|tx| tx.next_due()), Some(at(100)));
    assert_eq!(world.write(|tx| tx.promote_due(at(99))), 0);
    assert_eq!(world.write(|tx| tx.promote_due(at(100))), 1);
    assert_eq!(waiting(world), [("default default_pool".to_owned(), ids)]);
}

fn a_retry_stays_one_until_it_is_ready(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let leases = world.run(&ids);
    let retries = [0, 1].map(|at_| {
        let mut retry = to(leases[at_], TaskState::UpForRetry);
        (retry.due, retry.ended_at, retry.message) = (Some(at(500)), Some(at(40)), Some("no route".into()));
        retry
    });
    world.shift(&retries);
    let mut ready = change(&world.task(ids[1]), task("b"));
    ready.ready_at = at(50);
    let changes = [change(&world.task(ids[0]), task("a").not_before(at(700)).priority(3)), ready];
    assert_eq!(world.write(|tx| tx.change_if(&changes)), [true; 2]);
    let [a, b] = [ids[0], ids[1]].map(|id| world.task(id));
    assert_eq!((a.state, a.due, a.ready_at, a.priority), (TaskState::UpForRetry, Some(at(700)), at(700), 3));
    assert_eq!((b.state, b.due, b.ready_at), (TaskState::Scheduled, None, at(50)));
    for task in [a, b] {
        assert_eq!((task.attempt, task.epoch, task.ended_at), (1, 1, Some(at(40))));
        assert_eq!((task.message.as_deref(), task.started_at), (Some("no route"), Some(at(20))));
    }
    assert_eq!(waiting(world).len(), 1);
    assert_eq!(world.write(|tx| tx.promote_due(at(700))), 1);
}

fn a_change_needs_the_epoch(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let old = world.task(id);
    world.shift(&[to(world.run(&[id])[0], TaskState::Scheduled)]);
    let now = world.task(id);
    let mut stale = change(&old, task("a").priority(9));
    assert_eq!(world.write(|tx| tx.change_if(&[stale.clone()])), [false]);
    stale.task = LeaseRef::new(id, now.epoch + 1);
    let mut unknown = stale.clone();
    unknown.task = LeaseRef::new(TaskId(i64::MAX), 0);
    assert_eq!(world.write(|tx| tx.change_if(&[stale.clone(), unknown.clone()])), [false; 2]);
    assert_eq!(world.task(id), now);
    assert_eq!(world.write(|tx| tx.change_if(&[])), [] as [bool; 0]);
}

fn a_change_needs_a_task_that_waits(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 99)]));
    let names = ["queued", "running", "sensing", "kept", "ended", "ready", "retry"];
    let ids = world.insert(&names.map(|name| task(name).pool(pool("db"))));
    world.admit(&ids[..1]);
    world.run(&ids[1..2]);
    world.sense(&ids[2..3]);
    let mut kept = to(world.run(&ids[3..4])[0], TaskState::Sensing);
    kept.keeps_slots = true;
    world.shift(&[kept]);
    world.end(&world.run(&ids[4..5]));
    let mut retry = to(world.run(&ids[6..])[0], TaskState::UpForRetry);
    retry.due = Some(at(90));
    world.shift(&[retry]);
    let before = world.read(|tx| tx.tasks_by_id(&ids));
    let tasks: Vec<&TaskRecord> = before.iter().flatten().collect();
    for from in TaskState::ALL {
        let changes: Vec<Change> = tasks
            .iter()
            .zip(names)
            .filter(|(task, _)| from != task.state || !matches!(task.key.task.as_str(), "ready" | "retry"))
            .map(|(record, name)| {
                Change::new(record.lease_ref(), from, rows(&[task(name).priority(9)]).remove(0))
            })
            .collect();
        assert!(changes.len() >= 6);
        let changed = world.write(|tx| tx.change_if(&changes));
        assert!(changed.iter().all(|changed| !changed), "{from}: {changed:?}");
    }
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), before);
}

fn a_task_named_twice_is_changed_once(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let record = world.task(id);
    let [one, two] = [1, 2].map(|priority| change(&record, task("a").priority(priority)));
    assert_eq!(world.write(|tx| tx.change_if(&[one.clone(), two.clone()])), [true, false]);
    assert_eq!(world.task(id).priority, 1);
    assert_eq!(
        world.write(|tx| Ok([
            tx.change_if(std::slice::from_ref(&two))?,
            tx.change_if(std::slice::from_ref(&one))?
        ])),
        [[true]; 2]
    );
    assert_eq!(world.task(id).priority, 1, "in one transaction each finds what the one before left");
}

fn a_deleted_task_leaves_nothing(store: &dyn Store) {
    let world = World(store);
    let names = ["ready", "later", "retry", "ended", "landed", "stays"];
    let asked = |name: &str| {
        let task = task(name).limit(limit(name));
        if name == "later" { task.not_before(at(500)) } else { task }
    };
    let ids = world.insert(&names.map(asked));
    let mut retry = to(world.run(&ids[2..3])[0], TaskState::UpForRetry);
    retry.due = Some(at(90));
    let mut ended = to(world.run(&ids[3..4])[0], TaskState::Failed);
    ended.ended_at = Some(at(40));
    world.shift(&[retry, ended]);
    let sensor = world.sense(&ids[4..5]).remove(0);
    world.write(|tx| {
        tx.end_sensors_if_waiting(&[sensor.lease_ref()])?;
        let mut success = to(sensor.lease_ref(), TaskState::Success);
        (success.from, success.ended_at) = (TaskState::Sensing, Some(at(60)));
        tx.move_if(&[success])
    });
    // Every end of a sensor has its number.
    world.write(|tx| tx.number_changes(99));
    let records: Vec<TaskRecord> = world.read(|tx| tx.tasks_by_id(&ids)).into_iter().flatten().collect();
    let asked: Vec<_> = records.iter().take(5).map(|task| (task.lease_ref(), task.state)).collect();
    assert_eq!(world.write(|tx| tx.delete_if(&asked)), [true; 5]);
    let left = world.read(|tx| tx.tasks_by_id(&ids));
    assert_eq!(
        left.iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    assert_eq!(world.read(|tx| tx.tasks(&["ready", "landed"].map(key))), [None, None]);
    assert_eq!(world.read(|tx| tx.sensors(&[key("landed")])), [None]);
    assert_eq!(waiting(world), [("default default_pool".to_owned(), vec![ids[5]])]);
    assert_eq!(world.write(|tx| tx.promote_due(at(1_000))), 0);
    let known = world.read(|tx| tx.limits(&names.map(limit)));
    assert_eq!(
        known.iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(1_000), at(1_000), 9)), 0);
    assert_eq!(world.write(|tx| tx.delete_if(&asked)), [false; 5], "they are gone");
    assert_eq!(world.read(|tx| tx.survey(&SurveyQuery::new())).next_due, None);
}

fn a_deletion_needs_the_epoch(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    world.shift(&[to(world.run(&[id])[0], TaskState::Scheduled)]);
    let wrong = [0, 2].map(|epoch| (LeaseRef::new(id, epoch), TaskState::Scheduled));
    assert_eq!(world.write(|tx| tx.delete_if(&wrong)), [false; 2]);
    let unknown = (LeaseRef::new(TaskId(i64::MAX), 0), TaskState::Scheduled);
    let right = (LeaseRef::new(id, 1), TaskState::Scheduled);
    assert_eq!(world.write(|tx| tx.delete_if(&[unknown, right, right])), [false, true, false]);
}

fn a_deletion_needs_a_task_that_waits_or_ended(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["queued", "running", "ready", "ended", "kept"]);
    world.admit(&ids[..1]);
    world.run(&ids[1..2]);
    world.end(&world.run(&ids[3..4]));
    let mut kept = to(world.run(&ids[4..])[0], TaskState::Sensing);
    kept.keeps_slots = true;
    world.shift(&[kept]);
    let before = world.read(|tx| tx.tasks_by_id(&ids));
    let tasks: Vec<&TaskRecord> = before.iter().flatten().collect();
    for from in TaskState::ALL {
        let is_free = |task: &TaskRecord| matches!(task.key.task.as_str(), "ready" | "ended");
        let wrong: Vec<_> = tasks
            .iter()
            .filter(|task| from != task.state || !is_free(task))
            .map(|task| (task.lease_ref(), from))
            .collect();
        let gone = world.write(|tx| tx.delete_if(&wrong));
        assert!(gone.iter().all(|gone| !gone), "{from}: {gone:?}");
    }
    assert_eq!(world.read(|tx| tx.tasks_by_id(&ids)), before);
}

fn events_outlive_a_task_that_is_deleted(store: &dyn Store) {
    let world = World(store);
    let id = world.insert(&[task("landed").feed(Feed::Ends)])[0];
    let sensor = world.sense(&[id]).remove(0);
    world.write(|tx| {
        tx.end_sensors_if_waiting(&[sensor.lease_ref()])?;
        let mut success = to(sensor.lease_ref(), TaskState::Success);
        (success.from, success.ended_at) = (TaskState::Sensing, Some(at(60)));
        tx.move_if(&[success])
    });
    world.write(|tx| tx.number_changes(99));
    assert_eq!(world.write(|tx| tx.delete_if(&[(sensor.lease_ref(), TaskState::Success)])), [true]);
    assert_eq!(world.read(|tx| tx.feed(0, 9)).len(), 1, "it is still reported");
}

fn a_deleted_key_is_new_again(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let again = world.write(|tx| {
        assert_eq!(tx.delete_if(&[(LeaseRef::new(id, 0), TaskState::Scheduled)])?, [true]);
        tx.insert_tasks_if_absent(&rows(&[task("a").priority(4)]))
    });
    let Inserted::New(new) = again[0] else { panic!("{again:?}") };
    assert!(new > id, "numbers are never reused");
    assert_eq!((world.task(new).priority, world.ready()), (4, 1));
}
