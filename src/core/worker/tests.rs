//! Tests the state machine by examples, and against a log of everything that happened.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::group::LONGEST_HOLD;
use super::*;
use crate::lease::TaskId;

const PATIENCE: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn lease(id: i64) -> LeaseRef {
    LeaseRef::new(TaskId(id), 1)
}

fn worker(places: &[usize], gather: u64) -> WorkerState<&'static str> {
    let gather = Duration::from_secs(gather);
    let waits = Waits { patience: PATIENCE, gather, at_most: Duration::from_secs(5) };
    WorkerState::new(places.iter().copied(), waits)
}

/// Grants these leases to the first group and begins them.
fn begin(worker: &mut WorkerState<&'static str>, now: i64, leases: &[i64], deadline: Option<i64>) {
    let leases: Vec<LeaseRef> = leases.iter().copied().map(lease).collect();
    let (group, free) = worker.asks(at(now))[0];
    worker.granted(at(now), group, free, &leases, None, None);
    for lease in leases {
        assert!(worker.begins(lease, deadline.map(at)));
    }
}

#[test]
fn a_group_asks_for_as_many_as_are_free_and_again_when_there_may_be_more() {
    let mut worker = worker(&[2, 3], 0);
    assert_eq!(worker.asks(at(0)), [(0, 2), (1, 3)]);
    assert_eq!(worker.asks(at(0)), [], "they are asking");
    worker.granted(at(0), 0, 2, &[lease(1), lease(2)], None, None);
    worker.granted(at(0), 1, 3, &[lease(3)], None, None);
    assert_eq!((worker.next_ask(), worker.asks(at(4))), (Some(at(5)), vec![]), "one is full, one got all");
    worker.returned(at(4), lease(1), None);
    worker.returned(at(4), lease(3), None);
    assert!(worker.wants_to_ask());
    assert_eq!(worker.asks(at(4)), [(0, 1)], "there may be more for the first, and none for the second");
    worker.granted(at(4), 0, 1, &[], None, None);
    assert_eq!((worker.wants_to_ask(), worker.next_ask()), (false, Some(at(5))));
    worker.news();
    assert_eq!(worker.asks(at(4)), [(0, 1), (1, 3)]);
}

#[test]
fn a_group_asks_when_a_task_is_due_and_after_the_longest_wait() {
    let mut worker = worker(&[1], 0);
    worker.asks(at(0));
    worker.granted(at(0), 0, 1, &[], Some(at(3)), None);
    assert_eq!((worker.asks(at(2)), worker.next_ask()), (vec![], Some(at(3))));
    assert_eq!(worker.asks(at(3)), [(0, 1)]);
    worker.granted(at(3), 0, 1, &[], Some(at(99)), None);
    assert_eq!((worker.asks(at(7)), worker.next_ask()), (vec![], Some(at(8))));
    assert_eq!(worker.asks(at(8)), [(0, 1)]);
    worker.news();
    worker.granted(at(8), 0, 1, &[], None, None);
    assert_eq!(worker.asks(at(8)), [(0, 1)], "the news came while it asked");
}

#[test]
fn a_full_group_still_tells_what_it_serves() {
    let mut worker = worker(&[1], 0);
    worker.asks(at(0));
    worker.granted(at(0), 0, 1, &[lease(1)], None, Some(at(60)));
    worker.news();
    assert_eq!((worker.asks(at(59)), worker.next_ask()), (vec![], Some(at(60))));
    assert_eq!(worker.asks(at(60)), [(0, 0)]);
    worker.granted(at(60), 0, 0, &[], None, Some(at(120)));
    worker.returned(at(61), lease(1), None);
    assert_eq!(worker.asks(at(61)), [(0, 1)], "the news are not forgotten");
}

#[test]
fn a_group_that_asked_in_vain_asks_again() {
    let mut worker = worker(&[1], 0);
    worker.asks(at(0));
    worker.not_granted(0);
    assert_eq!(worker.asks(at(0)), [(0, 1)]);
}

#[test]
fn a_group_whose_attempt_got_no_thread_waits_a_moment() {
    let mut worker = worker(&[1], 0);
    begin(&mut worker, 0, &[1], None);
    worker.could_not_begin(at(0), lease(1));
    worker.returned(at(0), lease(1), Some("given back"));
    let ends = worker.ends(at(0));
    assert!(worker.stored(&ends));
    assert_eq!((worker.asks(at(0)), worker.next_ask()), (vec![], Some(at(1))));
    assert_eq!(worker.asks(at(1)), [(0, 1)]);
}

#[test]
fn a_place_is_taken_until_the_handler_has_returned_and_its_end_is_known() {
    let mut worker = worker(&[1], 0);
    begin(&mut worker, 0, &[1], None);
    worker.news();
    worker.returned(at(1), lease(1), Some("done"));
    assert_eq!(worker.asks(at(1)), []);
    let ends = worker.ends(at(1));
    assert_eq!((&ends[..], worker.ends(at(1))), (&[(lease(1), "done")][..], vec![]));
    worker.not_stored(at(1), ends);
    assert_eq!((worker.unstored(), worker.asks(at(1))), (vec![lease(1)], vec![]));
    let ends = worker.ends(at(1));
    assert!(worker.stored(&ends));
    assert_eq!((worker.unstored(), worker.asks(at(1))), (vec![], vec![(0, 1)]));
}

#[test]
fn what_runs_too_long_is_reported_and_then_given_up_and_keeps_its_place() {
    let mut worker = worker(&[2], 0);
    begin(&mut worker, 0, &[1], Some(10));
    assert_eq!((worker.notices(at(9)), worker.next_notice()), (vec![], Some(at(10))));
    assert_eq!(worker.notices(at(10)), [(lease(1), Notice::Overdue)]);
    assert_eq!((worker.notices(at(39)), worker.next_notice()), (vec![], Some(at(40))));
    assert_eq!(worker.notices(at(40)), [(lease(1), Notice::GivenUp)]);
    worker.end(at(40), lease(1), "ran too long");
    assert_eq!((worker.notices(at(41)), worker.next_notice()), (vec![], None));
    let ends = worker.ends(at(41));
    assert_eq!(ends, [(lease(1), "ran too long")]);
    worker.stored(&ends);
    worker.news();
    assert_eq!(worker.asks(at(41)), [(0, 1)], "its handler is still at work");
    worker.granted(at(41), 0, 1, &[], None, None);
    worker.returned(at(50), lease(1), Some("success after all"));
    worker.news();
    assert_eq!((worker.ends(at(50)), worker.asks(at(50))), (vec![], vec![(0, 2)]));
}

#[test]
fn an_attempt_that_its_handler_ended_is_not_given_up() {
    let mut worker = worker(&[1], 0);
    begin(&mut worker, 0, &[1], Some(10));
    worker.ended_itself(lease(1));
    assert_eq!((worker.notices(at(99)), worker.next_notice()), (vec![], None));
    worker.news();
    assert_eq!(worker.asks(at(99)), [], "its handler is still at work");
    worker.returned(at(99), lease(1), Some("a second end"));
    assert_eq!((worker.ends(at(99)), worker.asks(at(99))), (vec![], vec![(0, 1)]));
}

#[test]
fn free_places_wait_a_moment_for_more_that_are_about_to_be_free() {
    let mut worker = worker(&[4, 4], 0);
    let now = at(0);
    worker.asks(now);
    worker.granted(now, 0, 4, &[lease(1), lease(2), lease(3), lease(4)], None, None);
    worker.granted(now, 1, 4, &[lease(5)], None, None);
    (1..=5).for_each(|id| assert!(worker.begins(lease(id), None)));
    (1..=3).for_each(|id| worker.returned(now, lease(id), Some("end")));
    let ends = worker.ends(now);
    worker.stored(&ends[..1]);
    assert!(worker.wants_to_ask());
    assert_eq!((worker.asks(now), worker.next_ask()), (vec![], Some(now + LONGEST_HOLD)), "two follow one");
    worker.news();
    assert_eq!(worker.asks(now), [(1, 3)], "the other group waits for none of these");
    worker.granted(now, 1, 3, &[], None, None);
    worker.stored(&ends[1..2]);
    assert_eq!(
        (worker.next_ask(), worker.asks(now)),
        (Some(Timestamp::MIN), vec![(0, 2)]),
        "one follows two"
    );
    worker.granted(now, 0, 2, &[lease(6), lease(7)], None, None);
    worker.stored(&ends[2..]);
    (6..=7).for_each(|id| assert!(worker.begins(lease(id), None)));
    (6..=7).for_each(|id| worker.returned(now, lease(id), Some("end")));
    assert_eq!(worker.asks(now), []);
    let ends = worker.ends(now);
    worker.not_stored(now, ends);
    assert_eq!(worker.asks(now + LONGEST_HOLD - Duration::from_micros(1)), []);
    assert_eq!(worker.asks(now + LONGEST_HOLD), [(0, 1)], "the store may fail for long");
}

#[test]
fn free_places_do_not_wait_longer_because_the_clock_is_set_back() {
    let mut worker = worker(&[3], 0);
    begin(&mut worker, 0, &[1, 2], None);
    (1..=2).for_each(|id| worker.returned(at(9), lease(id), Some("end")));
    worker.news();
    assert_eq!(worker.asks(at(9)), []);
    assert_eq!((worker.asks(at(5)), worker.next_ask()), (vec![], Some(at(5) + LONGEST_HOLD)));
    assert_eq!(worker.asks(at(5) + LONGEST_HOLD), [(0, 1)]);
}

#[test]
fn free_places_do_not_wait_for_ends_that_gather() {
    let mut worker = worker(&[3], 1);
    begin(&mut worker, 0, &[1, 2], None);
    (1..=2).for_each(|id| worker.returned(at(0), lease(id), Some("end")));
    worker.news();
    assert_eq!(worker.asks(at(0)), [(0, 1)]);
}

#[test]
fn what_was_given_up_frees_its_place_only_when_its_handler_returns() {
    let mut worker = worker(&[2], 0);
    begin(&mut worker, 0, &[1], Some(1));
    worker.notices(at(99));
    worker.end(at(99), lease(1), "given up");
    worker.news();
    assert_eq!(worker.asks(at(99)), [(0, 1)], "no place is about to be free");
    worker.granted(at(99), 0, 1, &[lease(2)], None, None);
    worker.begins(lease(2), None);
    worker.returned(at(99), lease(2), None);
    worker.returned(at(99), lease(1), Some("too late"));
    worker.returned(at(99), lease(1), Some("again"));
    let ends = worker.ends(at(99));
    assert_eq!((worker.asks(at(99)), &ends[..]), (vec![(0, 1)], &[(lease(1), "given up")][..]));
    worker.stored(&ends);
    worker.granted(at(99), 0, 1, &[], None, None);
    worker.news();
    assert_eq!(worker.asks(at(99)), [(0, 2)]);
}

#[test]
fn ends_of_handlers_that_are_started_together_share_a_call() {
    let mut worker = worker(&[4], 0);
    begin(&mut worker, 0, &[1, 2, 3], None);
    worker.starts();
    worker.returned(at(0), lease(1), Some("a"));
    assert!(worker.calls_for_ends(at(0)), "to learn until when the first one waits");
    let until = worker.next_end().unwrap();
    assert!(at(0) < until && until < at(1), "{until:?}");
    worker.returned(at(0), lease(2), Some("b"));
    assert_eq!((worker.ends(at(0)), worker.calls_for_ends(at(0))), (vec![], false));
    worker.all_started();
    assert!(worker.calls_for_ends(at(0)) && worker.next_end() == Some(at(0)));
    assert_eq!(worker.ends(at(0)), [(lease(1), "a"), (lease(2), "b")]);
    worker.starts();
    worker.returned(at(1), lease(3), Some("c"));
    assert_eq!(worker.ends(at(1)), []);
    let ends = worker.ends(at(2));
    assert_eq!(ends, [(lease(3), "c")], "those of a runtime that is blocked do not start");
    worker.stored(&[1, 2, 3].map(|id| (lease(id), "stored")));
    begin(&mut worker, 5, &[4], None);
    worker.returned(at(5), lease(4), Some("d"));
    worker.stop(at(5));
    assert!(worker.calls_for_ends(at(5)));
    assert_eq!(worker.ends(at(5)), [(lease(4), "d")]);
}

#[test]
fn ends_gather_for_as_long_as_they_may() {
    let mut worker = worker(&[4], 3);
    begin(&mut worker, 0, &[1, 2, 3], None);
    worker.returned(at(1), lease(1), Some("a"));
    worker.returned(at(3), lease(2), Some("b"));
    assert_eq!((worker.ends(at(3)), worker.next_end()), (vec![], Some(at(4))));
    assert_eq!(worker.ends(at(4)), [(lease(1), "a"), (lease(2), "b")]);
    worker.returned(at(5), lease(3), Some("c"));
    assert_eq!((worker.ends(at(5)), worker.next_end()), (vec![], Some(at(8))));
    worker.stop(at(5));
    assert_eq!(worker.ends(at(5)), [(lease(3), "c")], "at the end there is nothing to wait for");
}

#[test]
fn an_end_that_is_refused_holds_up_no_other() {
    let mut worker = worker(&[9], 0);
    begin(&mut worker, 0, &[1, 2, 3, 4], None);
    (1..=4).for_each(|id| worker.returned(at(0), lease(id), Some("end")));
    let mut calls = Vec::new();
    while !worker.unstored().iter().all(|left| *left == lease(1)) {
        let ends = worker.ends(at(1));
        calls.push(ends.len());
        // The store refuses every call that contains the first end.
        match ends.iter().any(|(of, _)| *of == lease(1)) {
            true => worker.not_stored(at(1), ends),
            false => drop(worker.stored(&ends)),
        }
    }
    assert_eq!(calls, [4, 2, 1, 2, 1, 2, 1], "in parts, until only that one is left");
}

#[test]
fn a_worker_that_stops_returns_what_did_not_begin_and_tells_the_rest() {
    let mut worker = worker(&[4], 0);
    begin(&mut worker, 0, &[1, 2], None);
    worker.news();
    let asks = worker.asks(at(1));
    worker.granted(at(1), 0, asks[0].1, &[lease(3)], None, None);
    assert_eq!(worker.stop(at(2)), (vec![lease(3)], vec![lease(1), lease(2)]));
    assert!(!worker.begins(lease(3), None) && worker.asks(at(99)).is_empty());
    worker.returned(at(2), lease(3), Some("given back"));
    worker.returned(at(2), lease(1), Some("done"));
    let ends = worker.ends(at(2));
    assert_eq!(ends.len(), 2);
    worker.stored(&ends);
    assert_eq!((worker.is_done(), worker.next_notice()), (false, Some(at(32))));
    assert_eq!(worker.notices(at(32)), [(lease(2), Notice::CutOff)]);
    assert_eq!((worker.notices(at(32)), worker.is_over(at(32))), (vec![], false));
    assert!(worker.is_over(at(32) + LAST_CALL) && worker.working() == [lease(2)]);
    worker.returned(at(33), lease(2), None);
    assert!(worker.is_done());
}

#[test]
fn a_worker_is_not_done_while_it_asks() {
    let mut worker = worker(&[1], 0);
    worker.asks(at(0));
    worker.stop(at(0));
    assert!(!worker.is_done());
    worker.granted(at(0), 0, 1, &[lease(1)], None, None);
    assert!(!worker.is_done() && !worker.begins(lease(1), None));
    worker.returned(at(0), lease(1), None);
    assert!(worker.is_done());
}

#[test]
fn extremes_overflow_nothing() {
    for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        for wait in [Duration::ZERO, Duration::MAX] {
            let waits = Waits { patience: wait, gather: wait, at_most: wait };
            let mut worker: WorkerState<()> = WorkerState::new([usize::MAX], waits);
            worker.asks(now);
            worker.granted(now, 0, 1, &[lease(1)], Some(Timestamp::MAX), Some(Timestamp::MIN));
            worker.begins(lease(1), Some(now));
            worker.notices(now);
            worker.returned(now, lease(1), Some(()));
            let ends = worker.ends(now);
            worker.not_stored(now, ends);
            worker.stop(now);
            worker.notices(now);
            let _ = (worker.next_ask(), worker.next_end(), worker.next_notice(), worker.is_over(now));
        }
    }
}

/// A step of a test run.
#[derive(Debug, Clone)]
enum Step {
    News,
    /// The groups ask, and each is granted at most this many tasks; `None` if the store fails.
    Ask(Option<usize>),
    /// An attempt returns, with or without something to store.
    Return(usize, bool),
    /// Waiting ends are stored, or the store fails.
    Store(bool),
    /// Several handlers are being started, or all have been started.
    Start(bool),
    Later(u64),
    Stop,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::News),
        4 => prop::option::weighted(0.8, 0_usize..6).prop_map(Step::Ask),
        6 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(which, stores)| Step::Return(which, stores)),
        4 => prop::bool::weighted(0.7).prop_map(Step::Store),
        2 => any::<bool>().prop_map(Step::Start),
        3 => (0_u64..20).prop_map(Step::Later),
        1 => Just(Step::Stop),
    ]
}

/// Everything that is known about an attempt.
#[derive(Debug, Clone, Default)]
struct Log {
    group: usize,
    deadline: Option<Timestamp>,
    has_returned: bool,
    /// The first end that the attempt got, which is to be stored.
    end: Option<&'static str>,
    has_nothing_to_store: bool,
    is_known: bool,
}

impl Log {
    fn is_over(&self) -> bool {
        self.has_returned && (self.is_known || self.has_nothing_to_store)
    }

    fn ends(&mut self, end: Option<&'static str>) {
        if self.end.is_none() && !self.has_nothing_to_store {
            (self.end, self.has_nothing_to_store) = (end, end.is_none());
        }
    }
}

proptest! {
    #[test]
    fn places_bound_the_attempts_and_every_end_is_stored_once(
        places in prop::collection::vec(1_usize..4, 1..4),
        gather in 0_u64..3,
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut worker = worker(&places, gather);
        let (mut logs, mut now, mut next, mut stopped_at) = (BTreeMap::new(), at(0), 0, None);
        // Since when each group may have waited for places that are about to be free.
        let mut held_since = vec![None; places.len()];
        let all = steps.into_iter().chain((0..99).flat_map(|_| [Step::Stop, Step::Return(0, true), Step::Store(true)]));
        for step in all {
            let held = |logs: &BTreeMap<LeaseRef, Log>, group| {
                logs.values().filter(|log| log.group == group && !log.is_over()).count()
            };
            let is_outnumbered = |logs: &BTreeMap<LeaseRef, Log>, group| {
                let ends = |log: &&Log| log.group == group && log.has_returned && !log.is_over();
                gather == 0 && places[group] - held(logs, group) < logs.values().filter(ends).count()
            };
            if let Step::Ask(_) = step {
                let outnumbered = (0..places.len()).filter(|group| is_outnumbered(&logs, *group));
                outnumbered.for_each(|group| _ = held_since[group].get_or_insert(now));
            }
            match step {
                Step::News => worker.news(),
                Step::Start(true) => worker.starts(),
                Step::Start(false) => worker.all_started(),
                Step::Later(seconds) => now += Duration::from_secs(seconds),
                Step::Stop => {
                    worker.stop(now);
                    stopped_at.get_or_insert(now);
                }
                Step::Ask(most) => for (group, free) in worker.asks(now) {
                    prop_assert!(stopped_at.is_none(), "it asks after the stop");
                    prop_assert_eq!(free, places[group] - held(&logs, group));
                    let has_waited = held_since[group].take().is_some_and(|since| since + LONGEST_HOLD <= now);
                    prop_assert!(has_waited || !is_outnumbered(&logs, group), "more places are about to be free");
                    let Some(most) = most else {
                        worker.not_granted(group);
                        prop_assert!(worker.wants_to_ask(), "it asked in vain");
                        continue;
                    };
                    let leases: Vec<LeaseRef> = (0..most.min(free)).map(|n| lease(next + n as i64)).collect();
                    next += 10;
                    worker.granted(now, group, free, &leases, None, None);
                    for (n, lease) in leases.into_iter().enumerate() {
                        let deadline = (n % 2 == 0).then(|| now + Duration::from_secs(10));
                        prop_assert!(worker.begins(lease, deadline));
                        logs.insert(lease, Log { group, deadline, ..Log::default() });
                    }
                    prop_assert!(held(&logs, group) <= places[group]);
                },
                Step::Return(which, stores) => {
                    let mut works: Vec<_> = logs.iter_mut().filter(|(_, log)| !log.has_returned).collect();
                    if !works.is_empty() {
                        let at = which % works.len();
                        let (lease, log) = &mut works[at];
                        let end = stores.then_some("returned");
                        worker.returned(now, **lease, end);
                        log.has_returned = true;
                        log.ends(end);
                    }
                }
                Step::Store(works) => {
                    let ends = worker.ends(now);
                    for (lease, end) in &ends {
                        let log: &mut Log = logs.get_mut(lease).unwrap();
                        prop_assert_eq!(log.end, Some(*end));
                        prop_assert!(!log.is_known, "it is stored again");
                        log.is_known = works;
                    }
                    match works {
                        true => drop(worker.stored(&ends)),
                        false => worker.not_stored(now, ends),
                    }
                }
            }
            for (lease, notices) in worker.notices(now) {
                let log: &mut Log = logs.get_mut(&lease).unwrap();
                prop_assert!(!log.has_returned);
                let late = log.deadline.map(|deadline| now.saturating_duration_since(deadline));
                match notices {
                    Notice::Overdue => prop_assert!(log.deadline.unwrap() <= now),
                    Notice::GivenUp => {
                        prop_assert!(late.unwrap() >= PATIENCE);
                        worker.end(now, lease, "given up");
                        log.ends(Some("given up"));
                    }
                    Notice::CutOff => prop_assert!(now >= stopped_at.unwrap() + PATIENCE),
                }
            }
            let asks_soon = worker.next_ask().is_some_and(|at| at <= now + LONGEST_HOLD);
            prop_assert!(asks_soon || !worker.wants_to_ask(), "it never asks");
            for (lease, log) in &logs {
                prop_assert_eq!(worker.has(*lease), !log.is_over());
            }
            let is_done = stopped_at.is_some() && logs.values().all(Log::is_over);
            prop_assert_eq!(worker.is_done(), is_done);
        }
        prop_assert!(worker.is_done() && worker.unstored().is_empty());
    }
}
