//! Pokes that never return, and what else a fleet may do wrong.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use stationmaster::sensor::{EndReason, PokeOutcome};
use stationmaster::service::{PokeRequest, Service};
use stationmaster::store::Store;

use crate::scene::*;
use crate::stores::stores;

#[test]
fn whatever_some_targets_do_the_others_are_poked_in_time_and_the_end_is_not_held_up() {
    for store in stores() {
        let target = |n: usize| match n {
            0..8 => "panic",
            8..12 => "hang",
            12..16 => "late",
            16..20 => "long",
            _ => "good",
        };
        let names: Vec<(String, String)> =
            (0..64).map(|n| (format!("t{n}"), format!("{}-{n}", target(n)))).collect();
        let tasks: Vec<(&str, &str)> =
            names.iter().map(|(task, target)| (task.as_str(), target.as_str())).collect();
        sense(&store, 0, "kind", &tasks, waits(10, 100_000));

        let poked: Arc<Mutex<HashMap<String, Vec<i64>>>> = Arc::default();
        let (seen, forever) = (poked.clone(), Arc::new(Gate::default()));
        let poke = move |request: &PokeRequest| {
            let context = request.context.as_str();
            seen.lock().entry(context.into()).or_default().push(request.now.as_micros() / 1_000_000);
            if context.contains("panic") {
                panic!("on purpose");
            } else if context.contains("hang") {
                forever.pass();
            } else if context.contains("late") {
                std::thread::sleep(millis(400));
            } else if context.contains("long") {
                return PokeOutcome::Unreachable("x".repeat(10 << 20));
            }
            PokeOutcome::NotYet
        };
        let poker = patient(&store).poke_timeout(millis(250)).threads(4).max_pause(secs(40));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let (mut overran, mut unreachable) = (0, 0);
        for now in 0..=100 {
            let report = poker.tick(at(now)).unwrap();
            assert_eq!(
                (report.sensors, report.threads),
                (64, 4),
                "nobody ends, each hung thread is replaced"
            );
            assert!((4..=8).contains(&report.hung) || now == 0, "{report:?}");
            overran += report.overran;
            unreachable += report.unreachable;
        }
        assert!(overran >= 8, "{overran}");
        assert!(unreachable >= 20, "{unreachable}");
        let poked = std::mem::take(&mut *poked.lock());
        assert_eq!(poked.len(), 64);
        for (target, instants) in &poked {
            let gaps = instants.windows(2).map(|pair| pair[1] - pair[0]);
            if target.contains("good") {
                assert!(
                    gaps.max().unwrap() <= 20 && *instants.last().unwrap() >= 80,
                    "{target}: {instants:?}"
                );
            } else if target.contains("hang") {
                assert_eq!(instants.len(), 1, "{target} is not poked again while its poke hangs");
            }
        }
        let began = Instant::now();
        poker.leave().unwrap();
        assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn leaving_waits_for_pokes_no_longer_than_their_deadline() {
    for store in stores() {
        sense(&store, 0, "kind", &[("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")], waits(10, 1_000));
        let forever = Arc::new(Gate::default());
        let poke = move |_: &PokeRequest| {
            forever.pass();
            PokeOutcome::NotYet
        };
        let poker = patient(&store).wait_for_answers(millis(1)).poke_timeout(secs(2));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        tick_until(&mut poker, 0, |report| report.in_flight > 0);
        let began = Instant::now();
        poker.leave().unwrap();
        assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
        assert_eq!(state(&store, "a"), stationmaster::TaskState::Sensing);
    }
}

#[test]
fn what_pokes_answer_while_the_poker_leaves_counts() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits(10, 1_000));
        let poke = |_: &PokeRequest| {
            std::thread::sleep(millis(300));
            PokeOutcome::Landed(None)
        };
        let mut poker = patient(&store).wait_for_answers(millis(1)).kind("kind".try_into().unwrap(), poke);
        tick_until(&mut poker, 0, |report| report.in_flight == 1 || report.landed == 1);
        poker.leave().unwrap();
        assert_eq!(state(&store, "t"), stationmaster::TaskState::Success);
    }
}

#[test]
fn beyond_the_cap_the_poker_has_fewer_threads_until_hung_pokes_return() {
    for store in stores() {
        // All three begin before the first of them counts as hung.
        let settings = waits(10, 100_000).poke_timeout(secs(3)).unwrap();
        sense(&store, 0, "kind", &[("a", "hang-a"), ("b", "hang-b"), ("c", "hang-c")], settings);
        let (gate, good) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (gate.clone(), good.clone());
        let poke = move |request: &PokeRequest| {
            if request.context.as_str().contains("hang") {
                held.pass();
            } else {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            PokeOutcome::NotYet
        };
        let poker = patient(&store).threads(3).max_hung(0).poke_timeout(millis(300));
        let mut poker =
            poker.kind("kind".try_into().unwrap(), poke.clone()).kind("good".try_into().unwrap(), poke);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.overran, report.hung, report.threads), (3, 3, 0), "{report:?}");

        // No thread is left to poke this one. It waits, and times out without a poke.
        sense(&store, 1, "good", &[("good", "good"), ("short", "short")], waits(10, 5));
        let options_now = poker.tick(at(1));
        assert_eq!(options_now.unwrap().waiting, 2);
        assert_eq!(poker.tick(at(3)).unwrap().timed_out, 0);
        assert_eq!(poker.tick(at(7)).unwrap().timed_out, 2);
        assert_eq!(good.load(Ordering::SeqCst), 0);

        sense(&store, 8, "good", &[("other", "other")], waits(10, 1_000));
        assert_eq!(poker.tick(at(8)).unwrap().waiting, 1);
        gate.open();
        let mut late = 0;
        tick_until(&mut poker, 8, |report| {
            late += report.late;
            // A poke that returns while a tick ends counts as late at the next one.
            report.hung == 0 && late >= 3 && good.load(Ordering::SeqCst) == 1
        });
        assert_eq!(late, 3, "answers that nobody takes");
        assert_eq!(poker.tick(at(9)).unwrap().threads, 3);
    }
}

#[test]
fn a_sensor_of_a_target_that_hangs_still_times_out() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits(10, 35));
        let forever = Arc::new(Gate::default());
        let poke = move |_: &PokeRequest| {
            forever.pass();
            PokeOutcome::NotYet
        };
        let poker = patient(&store).poke_timeout(millis(100)).max_pause(secs(0));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let mut reports = (0..=35).map(|now| poker.tick(at(now)).unwrap());
        let unreachable: usize = reports.by_ref().take(35).map(|report| report.unreachable).sum();
        assert!((4..=5).contains(&unreachable), "each due time counts: {unreachable}");
        assert_eq!(reports.next().unwrap().timed_out, 1);
        let event = events(&store).remove(0);
        assert_eq!(event.reason, Some(EndReason::TimedOut));
        assert!(event.message.unwrap().ends_with("its last poke has not returned"));
    }
}

#[test]
fn a_kind_at_its_limit_holds_up_no_other() {
    for store in stores() {
        sense(&store, 0, "slow", &[("s1", "1"), ("s2", "2"), ("s3", "3"), ("s4", "4")], waits(10, 1_000));
        sense(&store, 0, "quick", &[("q1", "1"), ("q2", "2"), ("q3", "3"), ("q4", "4")], waits(10, 1_000));
        let gate = Arc::new(Gate::default());
        let [running, most, slow, quick] = [(); 4].map(|()| Arc::new(AtomicUsize::new(0)));
        let (held, busy, peak, done) = (gate.clone(), running, most.clone(), slow.clone());
        let slowly = move |_: &PokeRequest| {
            peak.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            held.pass();
            busy.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
            PokeOutcome::NotYet
        };
        let counted = quick.clone();
        let quickly = move |_: &PokeRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            PokeOutcome::NotYet
        };
        let mut poker = patient(&store)
            .wait_for_answers(millis(5))
            .kind("slow".try_into().unwrap(), slowly)
            .kind("quick".try_into().unwrap(), quickly)
            .at_once("slow".try_into().unwrap(), NonZeroUsize::new(2).unwrap());
        tick_until(&mut poker, 0, |report| quick.load(Ordering::SeqCst) == 4 && report.in_flight == 2);
        assert_eq!(slow.load(Ordering::SeqCst), 0);
        gate.open();
        tick_until(&mut poker, 0, |_| slow.load(Ordering::SeqCst) == 4);
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn pokes_that_return_right_at_their_deadline_all_come_back() {
    for store in stores() {
        let names: Vec<String> = (0..64).map(|n| format!("t{n}")).collect();
        let tasks: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        sense(&store, 0, "kind", &tasks, waits(1, 100_000_000));
        let deadline = millis(2);
        let poke = move |_: &PokeRequest| {
            let began = Instant::now();
            while began.elapsed() < deadline {
                std::hint::spin_loop();
            }
            PokeOutcome::NotYet
        };
        let poker = patient(&store).poke_timeout(deadline).max_pause(secs(0)).threads(8).max_hung(1_000);
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let (mut overran, mut late) = (0, 0);
        for now in 0..40 {
            let report = poker.tick(at(now)).unwrap();
            overran += report.overran;
            late += report.late;
        }
        tick_until(&mut poker, 39, |report| {
            overran += report.overran;
            late += report.late;
            // A poke that returns while a tick ends counts as late at the next one.
            report.hung == 0 && report.in_flight == 0 && late >= overran
        });
        assert_eq!(overran, late, "each poke past its deadline returned");
    }
}

/// Each tick finds a new target of every bad kind, and one of the good kind. Answers how often that was poked.
fn beside_kinds_that_hang(store: &Arc<dyn Store>, bad: &[&'static str], ticks: i64) -> usize {
    let (forever, good) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let counted = good.clone();
    let poker = patient(store).threads(4).max_hung(8).poke_timeout(millis(30));
    let mut poker = poker.kind("good".try_into().unwrap(), move |_: &PokeRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        PokeOutcome::NotYet
    });
    for kind in bad {
        let forever = forever.clone();
        let hangs = move |_: &PokeRequest| {
            forever.pass();
            PokeOutcome::NotYet
        };
        poker = poker.kind((*kind).try_into().unwrap(), hangs);
        poker = poker.at_once((*kind).try_into().unwrap(), NonZeroUsize::MIN);
    }
    let mut held_back = 0;
    for now in 0..ticks {
        for kind in bad.iter().chain(&["good"]) {
            let name = format!("{kind}-{now}");
            sense(store, now, kind, &[(&name, &name)], waits(100_000, 1_000_000));
        }
        let report = poker.tick(at(now)).unwrap();
        held_back += report.held_back;
        assert!(report.threads >= 1 && report.waiting == 0, "{report:?}");
    }
    assert!(held_back > 0);
    forever.open();
    good.load(Ordering::SeqCst)
}

#[test]
fn kinds_that_hang_do_not_take_the_threads_of_others() {
    for bad in [&["one"][..], &["one", "two", "three", "four"]] {
        for store in stores() {
            assert_eq!(beside_kinds_that_hang(&store, bad, 20), 20);
        }
    }
}

#[test]
fn a_kind_that_was_held_back_is_poked_again_when_its_calls_return() {
    for store in stores() {
        sense(&store, 0, "kind", &[("a", "a"), ("b", "b"), ("c", "c")], waits(10, 100_000));
        let (gate, answered) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (gate.clone(), answered.clone());
        let poke = move |_: &PokeRequest| {
            held.pass();
            counted.fetch_add(1, Ordering::SeqCst);
            PokeOutcome::NotYet
        };
        let poker = patient(&store).threads(1).max_hung(4).poke_timeout(millis(100)).max_pause(secs(0));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let report = poker.tick(at(0)).unwrap();
        let counts = (report.hung, report.overran, report.held_back, report.unreachable, report.backed_off);
        assert_eq!(counts, (2, 2, 1, 3, 3), "two of four are its share");
        gate.open();
        tick_until(&mut poker, 0, |report| report.hung == 0);
        let poked: usize = (1..=10).map(|now| poker.tick(at(now)).unwrap().poked).sum();
        assert_eq!((poked, answered.load(Ordering::SeqCst)), (3, 5));
    }
}

#[test]
fn threads_that_hang_count_after_the_poker_left_and_came_again() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits(10, 100_000));
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (gate.clone(), pokes.clone());
        let poke = move |_: &PokeRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            held.pass();
            PokeOutcome::NotYet
        };
        let poker = patient(&store).threads(1).max_hung(1).poke_timeout(millis(100));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        for (now, expected) in [(0, (1, 1, 0)), (1, (2, 0, 0)), (2, (2, 0, 1)), (3, (2, 0, 1))] {
            let report = poker.tick(at(now)).unwrap();
            assert_eq!((report.hung, report.threads, report.waiting), expected, "{now}");
            poker.leave().unwrap();
        }
        assert_eq!(pokes.load(Ordering::SeqCst), 2);
        gate.open();
        tick_until(&mut poker, 4, |report| report.hung == 0 && pokes.load(Ordering::SeqCst) == 3);
        assert_eq!(poker.tick(at(5)).unwrap().threads, 1);
    }
}
