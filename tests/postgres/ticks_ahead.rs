//! Where nothing is to be decided, a tick is one round trip. It grants and leaves what one in parts does.

use std::time::Duration;

use stationmaster::admission::{IfExists, Subject};
use stationmaster::id::RequestId;
use stationmaster::ops::{Admission, AdmitRequest, Finish, Finished};
use stationmaster::store::PostgresStore;
use stationmaster::testing::watch_round_trips;
use stationmaster::{LeaseRef, NewTask, TaskRecord, TaskState, Timestamp};

use crate::postgres_server::Plain;
use crate::scratch::{Scratch, rows, url};
use crate::{pool, pool_name, task};

const HOUR: Duration = Duration::from_secs(3_600);

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn request(nth: usize) -> RequestId {
    format!("tick {nth}").as_str().try_into().unwrap()
}

/// A store with one holder, whose ticks name the one before.
struct Side {
    scratch: Scratch,
    store: PostgresStore,
    ticks: usize,
    held: Vec<LeaseRef>,
}

impl Side {
    fn new() -> Self {
        let scratch = Scratch::new();
        let store = scratch.open(|options| options);
        store.write(|tx| tx.define([&pool("p", 7)], IfExists::Replace)).unwrap();
        Self { scratch, store, ticks: 0, held: Vec::new() }
    }

    fn enqueue(&self, name: &str, count: usize, of: impl Fn(NewTask) -> NewTask) {
        let new = |nth| of(task(&format!("{name} {nth}")).pool(pool_name("p")));
        let tasks: Vec<NewTask> = (0..count).map(new).collect();
        self.store.write(|tx| tx.enqueue(at(1), &tasks)).unwrap();
    }

    /// Ends as many of what it holds and admits, in one transaction. Returns in how many round trips it did.
    fn tick(&mut self, now: i64, ends: usize, budget: usize, is_last: bool) -> (Admission, usize) {
        self.ticks += 1;
        let order = AdmitRequest::new("h".try_into().unwrap(), request(self.ticks), budget, HOUR).started();
        let order = order.answered(request(self.ticks - 1));
        let done: Vec<Finish> = self.held.drain(..ends).map(Finish::success).collect();
        let (admission, trips) = watch_round_trips(|| {
            self.store.write(|tx| {
                let ended = tx.finish(at(now), &done)?;
                assert!(ended.iter().all(|end| *end == Finished::Ended(TaskState::Success)), "{ended:?}");
                match is_last {
                    true => tx.last(|tx| tx.admit(at(now), &order)),
                    false => tx.admit(at(now), &order),
                }
            })
        });
        let admission = admission.unwrap();
        self.held.extend(admission.granted.iter().map(TaskRecord::lease_ref));
        assert_eq!(self.store.read(|tx| tx.audit()).unwrap(), []);
        (admission, trips.len())
    }

    /// What a tick leaves, but for numbers of versions.
    fn left(&self) -> Vec<String> {
        let left = "SELECT concat('pool ', name, ' ', used) FROM sm.pool_use
            UNION ALL SELECT concat('lane ', ready, ' ', tasks, ' ', ARRAY[rank, logical_date, map_index, no], ' ', early)
              FROM sm.lane_use
            UNION ALL SELECT concat('tick ', id, ' ', at, ' ', nos, ' ', epochs) FROM sm.request
            UNION ALL SELECT concat('due ', due, ' ', early) FROM sm.tick
            UNION ALL SELECT concat('deltas ', count(*)) FROM sm.delta
            UNION ALL SELECT row_to_json(ready)::text FROM sm.ready
            UNION ALL SELECT row_to_json(lease)::text FROM sm.lease ORDER BY 1";
        let left = left.replace("sm.", &format!("\"{}\".", self.scratch.0.as_str()));
        rows(&left).iter().map(|row| row.get(0)).collect()
    }
}

/// Makes the same ticks, the first side ahead.
struct Pair([Side; 2]);

impl Pair {
    fn each(&self, work: impl Fn(&Side)) {
        self.0.iter().for_each(work);
    }

    /// Returns whether the tick was made ahead.
    fn tick(&mut self, now: i64, ends: usize, budget: usize) -> bool {
        let [(ahead, trips), (parts, _)] = [0, 1].map(|side| self.0[side].tick(now, ends, budget, side == 0));
        let of = format!("at {now}: {ends} ends, {budget} at most");
        assert_eq!(ahead, parts, "{of}");
        assert_eq!(self.0[0].left(), self.0[1].left(), "{of}");
        trips == 1
    }
}

#[test]
fn a_tick_ahead_grants_and_leaves_what_one_in_parts_does() {
    let mut pair = Pair([Side::new(), Side::new()]);
    pair.each(|side| side.enqueue("first", 20, |task| task));
    assert!(!pair.tick(10, 0, 2), "the holder has to tell what it serves");
    // Some remain, which have no room, or which are beyond the budget.
    for (ends, budget) in [(0, 2), (1, 1), (1, 16)] {
        assert!(pair.tick(20, ends, budget), "{ends} ends, {budget} at most");
    }
    pair.each(|side| side.enqueue("more", 1, |task| task));
    // The pool is full. In the end none remains.
    for (ends, budget) in [(0, 3), (7, 6), (5, 64), (5, 64), (2, 9), (0, 9)] {
        assert!(pair.tick(21, ends, budget), "{ends} ends, {budget} at most");
    }
    pair.each(|side| side.enqueue("later", 2, |task| task.not_before(at(40))));
    assert!(pair.tick(30, 0, 9), "none is due");
    pair.each(|side| side.enqueue("second", 3, |task| task));
    assert!(pair.tick(31, 0, 1), "others are");
    assert!(!pair.tick(40, 0, 1), "two are due");
}

/// Each of these is decided by the core.
#[test]
fn a_tick_that_has_to_decide_is_made_in_parts() {
    type Change = fn(&Side);
    let changes: [(&str, Change); 6] = [
        ("a task is overdue", |side| side.enqueue("due", 1, |task| task.not_before(at(15)))),
        ("tasks of two lanes are ready", |side| side.enqueue("wide", 2, |task| task.pool_slots(2))),
        ("one carries a limit", |side| {
            side.enqueue("limited", 1, |task| task.limit("l".try_into().unwrap()))
        }),
        ("a queue is paused", |side| {
            side.store.write(|tx| tx.pause(&[Subject::Queue("default".try_into().unwrap())])).unwrap();
        }),
        ("there are many deltas", |side| {
            (0..70).for_each(|nth| side.enqueue(&format!("many {nth}"), 1, |task| task));
        }),
        ("one is urgent", |side| side.enqueue("urgent", 1, |task| task.priority(3))),
    ];
    for (what, change) in changes {
        let mut pair = Pair([Side::new(), Side::new()]);
        pair.each(|side| side.enqueue("first", 20, |task| task));
        pair.tick(10, 0, 1);
        assert!(pair.tick(11, 0, 1), "{what}: before");
        pair.each(change);
        assert!(!pair.tick(20, 1, 5), "{what}");
    }
}

/// The note of the tick is what it is asked after.
#[test]
fn a_tick_ahead_is_repeated_by_its_name() {
    let mut side = Side::new();
    side.enqueue("first", 5, |task| task);
    side.tick(10, 0, 1, true);
    let (first, trips) = side.tick(11, 0, 2, true);
    assert_eq!((first.granted.len(), trips), (2, 1));
    side.ticks -= 1;
    let (again, _) = side.tick(12, 0, 2, true);
    assert_eq!(again.granted, first.granted);
}

/// A lease may last for as long as can be said.
#[test]
fn a_tick_ahead_grants_leases_of_any_length() {
    let side = Side::new();
    side.enqueue("first", 5, |task| task);
    for nth in 1..=3 {
        let order = AdmitRequest::new("h".try_into().unwrap(), request(nth), 1, Duration::MAX).started();
        let order = order.answered(request(nth - 1));
        let (admission, trips) =
            watch_round_trips(|| side.store.write(|tx| tx.last(|tx| tx.admit(at(10), &order))));
        assert_eq!(admission.unwrap().granted.len(), 1);
        assert_eq!(trips.len() == 1, nth > 1, "{nth}");
    }
}

/// A transaction that has a task locked makes no tick wait, and keeps no other task from being granted.
#[test]
fn a_tick_ahead_passes_over_what_is_locked() {
    let mut side = Side::new();
    side.enqueue("first", 5, |task| task);
    side.tick(10, 0, 1, true);
    let host = Plain::connect(&url());
    host.ask(&format!(
        "BEGIN; SELECT FROM \"{}\".ready ORDER BY no LIMIT 1 FOR UPDATE",
        side.scratch.0.as_str()
    ));
    let mut granted = |budget| {
        let (admission, _) = side.tick(11, 0, budget, true);
        admission.granted.iter().map(|task| task.key.task.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(granted(2), ["first 2", "first 3"]);
    host.ask("ROLLBACK");
    assert_eq!(granted(9), ["first 1", "first 4"]);
}
