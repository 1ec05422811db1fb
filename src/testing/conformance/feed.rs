//! The feed: what happens to a task that chose it, in order, until it is forgotten; and its consumers.

use super::world::{World, at, holder, rows, task, to};
use crate::error::Error;
use crate::feed::{Consumer, TaskEvent};
use crate::lease::LeaseRef;
use crate::ops::Finish;
use crate::sensor::EndReason;
use crate::store::Store;
use crate::store::contract::{Change, Move};
use crate::task::{Feed, TaskState};
use crate::testing::RawStoreExt;

cases!("feed":
    an_end_is_reported_if_the_task_asks,
    what_else_a_sensor_does_is_reported_if_the_task_asks,
    why_a_sensor_ended_is_reported,
    moves_of_one_call_are_reported_in_its_order,
    a_finish_is_reported_once,
    a_change_of_the_choice_counts,
    events_outlive_their_tasks,
    the_feed_is_paged_and_its_numbers_have_no_gap,
    an_undone_end_is_not_reported,
    what_was_accepted_or_is_old_is_forgotten,
    consumers_are_kept_by_name,
);

/// Returns the events of the feed, once all are numbered.
fn events(world: World<'_>) -> Vec<TaskEvent> {
    world.write(|tx| tx.number_changes(1_000));
    world.read(|tx| tx.feed(0, 1_000))
}

fn states(world: World<'_>) -> Vec<(String, TaskState)> {
    events(world).into_iter().map(|event| (event.task.task.to_string(), event.state)).collect()
}

fn at_60(lease: LeaseRef, state: TaskState) -> Move {
    Move { ended_at: Some(at(60)), ..to(lease, state) }
}

fn an_end_is_reported_if_the_task_asks(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[
        task("off"),
        task("ends").feed(Feed::Ends),
        task("all").feed(Feed::EndsAndSensors),
        task("recorded").feed(Feed::Ends).attempts_as_runs(true),
    ]);
    let leases = world.run(&ids);
    let mut first = at_60(leases[1], TaskState::Success);
    (first.value, first.message) = (Some("7 rows".into()), Some("slow".into()));
    world.shift(&[
        at_60(leases[0], TaskState::Failed),
        first,
        at_60(leases[2], TaskState::Cancelled),
        Move { due: Some(at(90)), ..at_60(leases[3], TaskState::UpForRetry) },
    ]);
    let events = events(world);
    let names: Vec<_> = events.iter().map(|event| event.task.task.as_str()).collect();
    assert_eq!(names, ["ends", "all"], "a retry of an attempt is no end");
    let event = events.iter().find(|event| event.id == ids[1]).unwrap();
    assert_eq!((event.attempt, event.at, event.state), (1, at(60), TaskState::Success));
    assert_eq!((event.value.as_deref(), event.message.as_deref()), (Some("7 rows"), Some("slow")));
}

fn what_else_a_sensor_does_is_reported_if_the_task_asks(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[
        task("off"),
        task("ends").feed(Feed::Ends),
        task("all").feed(Feed::EndsAndSensors),
        task("again").feed(Feed::EndsAndSensors),
    ]);
    let leases: Vec<LeaseRef> = world.sense(&ids).iter().map(|sensor| sensor.lease_ref()).collect();
    let from_sensor = |lease, state| Move { from: TaskState::Sensing, ..at_60(lease, state) };
    let mut moves: Vec<Move> =
        leases[..3].iter().map(|lease| from_sensor(*lease, TaskState::Scheduled)).collect();
    moves.push(Move { due: Some(at(90)), ..from_sensor(leases[3], TaskState::UpForRetry) });
    world.shift(&moves);
    let expected = [("all", TaskState::Scheduled), ("again", TaskState::UpForRetry)];
    assert_eq!(states(world), expected.map(|(name, state)| (name.to_owned(), state)));
}

fn why_a_sensor_ended_is_reported(store: &dyn Store) {
    use EndReason::{Cancelled, ExecutionTimedOut, Failed, Landed, TimedOut, Unreachable};
    let world = World(store);
    let reasons = [Landed, TimedOut, Failed, Cancelled, ExecutionTimedOut, Unreachable];
    let names: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    let tasks: Vec<_> = names.iter().map(|name| task(name).feed(Feed::EndsAndSensors)).collect();
    let sensors = world.sense(&world.insert(&tasks));
    let ends: Vec<Move> = sensors
        .iter()
        .zip(reasons)
        .map(|(sensor, reason)| Move {
            from: TaskState::Sensing,
            reason: Some(reason),
            ..at_60(
                sensor.lease_ref(),
                if reason == Landed { TaskState::Scheduled } else { TaskState::Failed },
            )
        })
        .collect();
    world.shift(&ends);
    let found: Vec<_> =
        events(world).into_iter().map(|event| (event.task.task.to_string(), event.reason)).collect();
    let expected: Vec<_> = names.into_iter().zip(reasons.map(Some)).collect();
    assert_eq!(found, expected);
    // Of an attempt there is none.
    let id = world.insert(&[task("plain").feed(Feed::Ends)])[0];
    world.shift(&[at_60(world.run(&[id])[0], TaskState::Failed)]);
    assert_eq!(events(world).last().map(|event| event.reason), Some(None));
}

/// Whatever tables the tasks stand in, and whatever order their numbers have.
fn moves_of_one_call_are_reported_in_its_order(store: &dyn Store) {
    let world = World(store);
    let names = ["c", "a", "e", "b", "d"];
    let ids = world.insert(&names.map(|name| task(name).feed(Feed::Ends)));
    let sensing = world.sense(&ids[1..2]).remove(0).lease_ref();
    let running = world.run(&ids[2..4]);
    let idle = |id| LeaseRef::new(id, 0);
    let from = |from, lease| Move { from, ..at_60(lease, TaskState::Skipped) };
    world.shift(&[
        from(TaskState::Scheduled, idle(ids[4])),
        from(TaskState::Running, running[1]),
        from(TaskState::Scheduled, idle(ids[0])),
        from(TaskState::Sensing, sensing),
        from(TaskState::Running, running[0]),
    ]);
    let found: Vec<String> = states(world).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["d", "b", "c", "a", "e"]);
}

fn a_finish_is_reported_once(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&["a", "b", "c", "d"].map(|name| match name {
        "d" => task(name),
        name => task(name).feed(Feed::Ends),
    }));
    let leases = world.run(&ids);
    let ends: Vec<Finish> = leases.iter().map(|lease| Finish::success(*lease)).collect();
    store.write(|tx| tx.finish(at(60), &ends[..1])).unwrap();
    store.write(|tx| tx.finish(at(61), &ends[1..])).unwrap();
    assert_eq!(states(world), ["a", "b", "c"].map(|name| (name.to_owned(), TaskState::Success)));
    assert_eq!(events(world)[0].at, at(60));
    // A repeated end adds no event.
    store.write(|tx| tx.finish(at(62), &ends)).unwrap();
    assert_eq!(events(world).len(), 3);
}

fn a_change_of_the_choice_counts(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("on"), task("off").feed(Feed::Ends)]);
    let to = rows(&[task("on").feed(Feed::EndsAndSensors), task("off")]);
    let changes: Vec<Change> = ids
        .iter()
        .zip(to)
        .map(|(id, to)| Change::new(LeaseRef::new(*id, 0), TaskState::Scheduled, to))
        .collect();
    assert_eq!(world.write(|tx| tx.change_if(&changes)), [true, true]);
    let tasks: Vec<_> = world.read(|tx| tx.tasks_by_id(&ids)).into_iter().flatten().collect();
    assert_eq!([tasks[0].feed, tasks[1].feed], [Feed::EndsAndSensors, Feed::Off]);
    let ends: Vec<Move> =
        tasks.iter().map(|task| Move::new(task.lease_ref(), task.state, TaskState::Skipped)).collect();
    world.shift(&ends);
    assert_eq!(states(world), [("on".to_owned(), TaskState::Skipped)]);
}

fn events_outlive_their_tasks(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("a").feed(Feed::Ends)]);
    let lease = world.run(&ids)[0];
    world.shift(&[at_60(lease, TaskState::Success)]);
    let gone = world.write(|tx| tx.forget_ended(TaskState::Success, at(61), at(61), 9));
    assert_eq!(gone, 1);
    assert_eq!(states(world), [("a".to_owned(), TaskState::Success)]);
}

/// Inserts seven ended tasks that are in the feed.
fn seven(world: World<'_>) -> Vec<TaskEvent> {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let ids = world.insert(&names.map(|name| task(name).feed(Feed::Ends)));
    for (lease, micros) in world.run(&ids).into_iter().zip([50, 90, 40, 30, 20, 60, 70]) {
        world.shift(&[Move { ended_at: Some(at(micros)), ..to(lease, TaskState::Success) }]);
    }
    events(world)
}

fn the_feed_is_paged_and_its_numbers_have_no_gap(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.feed_last()), 0);
    let all = seven(world);
    assert_eq!(all.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(world.read(|tx| tx.feed_last()), 7);
    for size in 1..9 {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = world.read(|tx| tx.feed(after, size));
            let Some(last) = page.last() else { break };
            assert!(last.seq > after, "a page begins behind its cursor");
            after = last.seq;
            found.extend(page);
        }
        assert_eq!(found, all);
    }
    assert_eq!(world.read(|tx| tx.feed(u64::MAX, 9)), []);
    assert_eq!(world.read(|tx| tx.feed(0, 0)), []);
}

fn an_undone_end_is_not_reported(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("a").feed(Feed::Ends)]);
    let lease = world.run(&ids)[0];
    let undone = store.write_raw(|tx| -> crate::Result<()> {
        tx.move_if(&[at_60(lease, TaskState::Success)])?;
        Err(Error::abort("undone"))
    });
    assert!(undone.is_err());
    assert_eq!(events(world), []);
    world.shift(&[at_60(lease, TaskState::Failed)]);
    assert_eq!(events(world)[0].seq, 1, "its number was not used");
}

fn what_was_accepted_or_is_old_is_forgotten(store: &dyn Store) {
    let world = World(store);
    seven(world);
    let left = || world.read(|tx| tx.feed(0, 99)).iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(world.write(|tx| tx.forget_feed(0, at(i64::MIN), 99)), 0);
    assert_eq!(world.write(|tx| tx.forget_feed(9, at(99), 0)), 0);
    assert_eq!(world.write(|tx| tx.forget_feed(1, at(i64::MIN), 99)), 1);
    assert_eq!(left(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(world.write(|tx| tx.forget_feed(0, at(40), 3)), 1, "the fifth is not looked at");
    assert_eq!(world.write(|tx| tx.forget_feed(0, at(40), 99)), 1, "not at the instant itself");
    assert_eq!(left(), [2, 3, 6, 7]);
    assert_eq!(world.write(|tx| tx.forget_feed(u64::MAX, at(i64::MIN), 99)), 4);
    assert_eq!(world.read(|tx| tx.feed_last()), 7, "numbers are not used again");
}

fn consumers_are_kept_by_name(store: &dyn Store) {
    let world = World(store);
    let consumer = |name: &str, cursor| Consumer {
        name: holder(name),
        cursor,
        seen_at: at(-3),
        lost: 4,
        dropped: cursor == 7,
        reader: i64::MIN,
        until: at(9),
    };
    assert_eq!(world.write(|tx| tx.hold_consumer(&holder("b"))), None);
    world.write(|tx| {
        tx.put_consumer(&consumer("b", 1))?;
        tx.put_consumer(&consumer("a", 2))?;
        tx.put_consumer(&consumer("b", 7))
    });
    assert_eq!(world.read(|tx| tx.consumers()), [consumer("a", 2), consumer("b", 7)]);
    assert_eq!(world.write(|tx| tx.hold_consumer(&holder("b"))), Some(consumer("b", 7)));
    assert!(world.write(|tx| tx.delete_consumer(&holder("b"))));
    assert!(!world.write(|tx| tx.delete_consumer(&holder("b"))));
    assert_eq!(world.read(|tx| tx.consumers()), [consumer("a", 2)]);
}
