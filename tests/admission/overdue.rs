//! More tasks come due than one tick makes ready.

use stationmaster::admission::Policy;
use stationmaster::pool::Slots;

use super::{at, db, names, on_every_store};

/// The most that one tick makes ready.
const MOST: usize = 10_000;

#[test]
fn a_tick_makes_a_part_ready_and_is_due_again_at_once() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(2));
        let tasks: Vec<_> =
            (0..2 * MOST + 1).map(|n| db(&n.to_string(), 1).not_before(at(10 + i64::from(n == 0)))).collect();
        scene.put(0, &tasks);
        scene.put(0, &[db("later", 1).not_before(at(99))]);

        let first = scene.tick(20, &Policy::Backfill);
        assert_eq!((first.promoted, first.next_due), (MOST, Some(at(20))), "there is more to do at once");
        assert_eq!(names(&first.granted), ["1", "2"]);
        let last = "not before 1970-01-01 00:00:11 UTC; also pool db: 0 open of 2, needs 1";
        assert_eq!(scene.why("0"), last, "due last, so not ready yet");
        let second = scene.tick(21, &Policy::Backfill);
        assert_eq!((second.promoted, second.next_due), (MOST, Some(at(21))));
        let third = scene.tick(22, &Policy::Backfill);
        assert_eq!((third.promoted, third.next_due), (1, Some(at(99))));
        assert_eq!(third.refusals.iter().map(|lane| lane.tasks).sum::<u64>(), 2 * MOST as u64 - 1);
    });
}

#[test]
fn of_tasks_due_at_one_instant_the_first_in_order_become_ready_first() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(1));
        let mut tasks: Vec<_> = (0..MOST).map(|n| db(&n.to_string(), 1).not_before(at(10))).collect();
        tasks.push(db("urgent", 1).not_before(at(10)).priority(1));
        tasks.push(db("more urgent, due later", 1).not_before(at(11)).priority(2));
        scene.put(0, &tasks);

        let first = scene.tick(20, &Policy::Backfill);
        assert_eq!(names(&first.granted), ["urgent"], "although it was enqueued last");
        scene.succeed(20, &first.granted[0]);
        let second = scene.tick(20, &Policy::Backfill);
        assert_eq!((second.promoted, names(&second.granted)), (2, vec!["more urgent, due later"]));
    });
}

#[test]
fn a_repeated_request_is_due_at_once_if_more_is_overdue() {
    on_every_store(|scene| {
        let tasks: Vec<_> = (0..=MOST).map(|n| db(&n.to_string(), 1).not_before(at(10))).collect();
        scene.pool("db", Slots::Limited(1));
        scene.put(0, &tasks);
        let order = scene.order(9);
        let first = scene.admit(20, &order);
        let again = scene.admit_again(25, &order);
        assert_eq!((again.granted, again.promoted), (first.granted, 0));
        assert_eq!((first.next_due, again.next_due), (Some(at(20)), Some(at(25))));
    });
}
