//! What is kept of attempts.

use super::steps::Steps;
use super::world::{World, at, holder, task, to};
use crate::id::QueueName;
use crate::lease::LeaseRef;
use crate::store::Store;
use crate::store::contract::Move;
use crate::task::{KeptAttempts, PastAttempt, TaskState};

cases!("attempts":
    an_attempt_that_did_not_succeed_is_kept,
    what_succeeds_or_goes_on_is_not,
    a_task_says_which_are_kept,
    an_end_is_not_before_the_start,
    the_latest_are_kept,
    messages_are_cut,
    they_go_with_their_task,
);

fn attempts(world: World<'_>, lease: LeaseRef) -> Vec<PastAttempt> {
    world.read(|tx| tx.attempts(&[lease.id])).remove(0)
}

fn failed(lease: LeaseRef, state: TaskState) -> Move {
    let mut failed = to(lease, state);
    (failed.ended_at, failed.message, failed.finished) = (Some(at(40)), Some("why".into()), true);
    failed
}

fn an_attempt_that_did_not_succeed_is_kept(store: &dyn Store) {
    let world = World(store);
    let slow = |name| task(name).queue(QueueName::new("slow").unwrap());
    let ids = world.insert(&[slow("a"), task("b"), task("c"), task("d")]);
    let leases = world.run(&ids);
    let mut lost = to(leases[2], TaskState::Scheduled);
    (lost.at, lost.message) = (Some(at(60)), Some("lost".into()));
    let mut back = to(leases[3], TaskState::Scheduled);
    (back.at, back.message, back.finished) = (Some(at(70)), Some("of before".into()), true);
    let mut retry = failed(leases[0], TaskState::UpForRetry);
    retry.due = Some(at(500));
    let cancelled = Move { finished: false, ..failed(leases[1], TaskState::Cancelled) };
    world.shift(&[retry, cancelled, lost, back]);
    let expected = PastAttempt {
        attempt: 1,
        epoch: 1,
        queue: QueueName::new("slow").unwrap(),
        holder: Some(holder("h")),
        queued_at: Some(at(10)),
        started_at: Some(at(20)),
        ended_at: at(40),
        became: TaskState::UpForRetry,
        by_holder: true,
        message: Some("why".into()),
    };
    let plain = PastAttempt { queue: QueueName::default_queue(), ..expected.clone() };
    let cancelled = PastAttempt { became: TaskState::Cancelled, by_holder: false, ..plain.clone() };
    let (became, lost) = (TaskState::Scheduled, Some("lost".into()));
    let lost = PastAttempt { became, message: lost, by_holder: false, ended_at: at(60), ..plain.clone() };
    let back = PastAttempt { became, message: None, ended_at: at(70), ..plain };
    let kept = world.read(|tx| tx.attempts(&[ids[3], ids[0], ids[1], ids[0], ids[2]]));
    assert_eq!(kept, [[back], [expected.clone()], [cancelled], [expected], [lost]], "as asked");
    assert_eq!(world.read(|tx| tx.attempts(&[])), [] as [Vec<PastAttempt>; 0]);
}

fn what_succeeds_or_goes_on_is_not(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["success", "skipped", "sensing", "landed", "waits", "again"]);
    let leases = world.run(&ids[..4]);
    world.shift(&[
        to(leases[0], TaskState::Success),
        failed(leases[1], TaskState::Skipped),
        to(leases[2], TaskState::Sensing),
        to(leases[3], TaskState::Sensing),
        failed(LeaseRef::new(ids[4], 0), TaskState::Failed),
        failed(LeaseRef::new(ids[5], 0), TaskState::Failed),
    ]);
    world.shift(&[to(leases[3], TaskState::Scheduled), to(LeaseRef::new(ids[5], 0), TaskState::Scheduled)]);
    assert_eq!(world.read(|tx| tx.attempts(&ids)), vec![Vec::new(); 6]);
    // A sensor that fails ends its attempt, which no one holds.
    world.shift(&[Move { finished: false, ..failed(leases[2], TaskState::Failed) }]);
    let kept = attempts(world, leases[2]);
    assert_eq!((kept.len(), &kept[0].holder, kept[0].started_at), (1, &None, Some(at(20))));
}

/// By the end of a lease that was read and of one that was not, and by a sensor.
fn a_task_says_which_are_kept(store: &dyn Store) {
    let world = World(store);
    let choices = [KeptAttempts::None, KeptAttempts::Failures, KeptAttempts::All];
    let names = ["success", "skipped", "fails", "back", "landed", "goes-on", "fails-later", "unread"];
    let tasks: Vec<_> = (0..choices.len() * names.len())
        .map(|n| task(&format!("t{n}")).keep_attempts(choices[n / names.len()]))
        .collect();
    let ids = world.insert(&tasks);
    let found: Vec<_> = world.read(|tx| tx.tasks_by_id(&ids)).into_iter().flatten().collect();
    assert!(
        found.iter().zip(&tasks).all(|(found, task)| found.keep_attempts == task.keep_attempts),
        "as it was enqueued"
    );
    let leases = world.run(&ids);
    let sensing = |lease| to(lease, TaskState::Sensing);
    let landed = |lease, state| Move { ended_at: Some(at(50)), from: TaskState::Sensing, ..to(lease, state) };
    let (mut ends, mut later, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for leases in leases.chunks(names.len()) {
        ends.push(Move { message: None, ..failed(leases[0], TaskState::Success) });
        ends.push(failed(leases[1], TaskState::Skipped));
        ends.push(failed(leases[2], TaskState::Failed));
        ends.push(Move { finished: true, at: Some(at(40)), ..to(leases[3], TaskState::Scheduled) });
        ends.extend(leases[4..7].iter().map(|lease| sensing(*lease)));
        later.push(landed(leases[4], TaskState::Success));
        later.push(landed(leases[5], TaskState::Scheduled));
        later.push(landed(leases[6], TaskState::Failed));
        unread.push(Move { message: None, ..failed(leases[7], TaskState::Success) });
    }
    world.shift(&ends);
    world.shift(&later);
    // What a store does not end itself, its caller moves.
    let done = world.write(|tx| tx.end_if_leased(&unread));
    let left = unread.into_iter().zip(done).filter(|(_, done)| done.is_none()).map(|(end, _)| end);
    world.shift(&left.collect::<Vec<_>>());
    let (success, scheduled) = (TaskState::Success, TaskState::Scheduled);
    let failures =
        vec![("fails", TaskState::Failed), ("back", scheduled), ("fails-later", TaskState::Failed)];
    let all = vec![
        ("success", success),
        ("skipped", TaskState::Skipped),
        ("fails", TaskState::Failed),
        ("back", scheduled),
        ("landed", success),
        ("goes-on", scheduled),
        ("fails-later", TaskState::Failed),
        ("unread", success),
    ];
    for (ids, expected) in ids.chunks(names.len()).zip([Vec::new(), failures, all]) {
        let rows = world.read(|tx| tx.attempts(ids));
        let found =
            rows.iter().zip(names).flat_map(|(rows, name)| rows.iter().map(move |row| (name, row.became)));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        for (name, row) in names.iter().zip(&rows).filter_map(|(name, rows)| Some((*name, rows.first()?))) {
            let is_sensor = ["landed", "goes-on", "fails-later"].contains(&name);
            assert_eq!((row.holder.is_some(), row.by_holder), (!is_sensor, !is_sensor), "{name}");
            assert_eq!((row.epoch, row.started_at), (1, Some(at(20))), "{name}");
            let says = matches!(row.became, TaskState::Skipped) || name == "fails";
            assert_eq!(row.message.is_some(), says, "{name}");
        }
    }
}

fn an_end_is_not_before_the_start(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["queued", "running", "unknown"]);
    let queued = world.admit(&ids[..1])[0].lease_ref();
    let others = world.run(&ids[1..]);
    let early = |lease| Move { ended_at: Some(at(5)), ..failed(lease, TaskState::Failed) };
    world.shift(&[early(queued), early(others[0]), to(others[1], TaskState::Failed)]);
    let ends = [queued, others[0], others[1]].map(|lease| {
        let kept = attempts(world, lease).remove(0);
        (kept.started_at, kept.ended_at)
    });
    assert_eq!(ends, [(None, at(10)), (Some(at(20)), at(20)), (Some(at(20)), at(20))]);
}

fn the_latest_are_kept(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    let mut last = None;
    for round in 1..=20 {
        let lease = world.run(&ids[..1])[0];
        // The third succeeds, and counts as a grant.
        let to = if round == 3 { TaskState::Success } else { TaskState::Failed };
        world.shift(&[failed(lease, to)]);
        world.shift(&[super::world::to(lease, TaskState::Scheduled)]);
        let epochs: Vec<i64> = attempts(world, lease).iter().map(|kept| kept.epoch).collect();
        let expected: Vec<i64> = (1.max(round - 15)..=round).filter(|epoch| *epoch != 3).collect();
        // Nothing is forgotten until the next one is kept.
        if round != 3 {
            assert_eq!(epochs, expected, "after {round}");
        }
        last = Some(lease);
    }
    let kept = attempts(world, last.unwrap());
    assert_eq!(kept.len(), 16);
    assert!(kept.iter().all(|kept| i64::from(kept.attempt) == kept.epoch));
    assert_eq!(world.read(|tx| tx.attempts(&ids[1..])), [[]], "of each task for itself");
}

fn messages_are_cut(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["short", "long"]);
    for (lease, characters) in world.run(&ids).into_iter().zip([1_000, 1_001]) {
        let message = Some("é".repeat(characters));
        world.shift(&[Move { message: message.clone(), ..failed(lease, TaskState::Failed) }]);
        assert_eq!(attempts(world, lease)[0].message, Some("é".repeat(1_000)));
        assert_eq!(world.task(lease.id).message, message, "the task has all of it");
    }
}

fn they_go_with_their_task(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["forgotten", "deleted", "stays"]);
    let leases = world.run(&ids);
    world.shift(&leases.iter().map(|lease| failed(*lease, TaskState::Failed)).collect::<Vec<_>>());
    world.write(|tx| tx.delete_if(&[(leases[1], TaskState::Failed)]));
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 1)), 1);
    let kept = world.read(|tx| tx.attempts(&ids));
    assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1]);
}
