//! Outcomes that come when much has changed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stationmaster::TaskState;
use stationmaster::clock::SystemClock;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{LoopHandle, PokeRequest, Poker, Service, drive};
use stationmaster::store::TxMode;

use crate::scene::*;
use crate::stores::stores;

/// The first poke waits at the gate and lands; those after it find nothing yet.
fn first_lands(gate: &Arc<Gate>, pokes: &Arc<AtomicUsize>) -> impl Fn(&PokeRequest) -> PokeOutcome + use<> {
    let (gate, pokes) = (gate.clone(), pokes.clone());
    move |_| match pokes.fetch_add(1, Ordering::SeqCst) {
        0 => {
            gate.pass();
            PokeOutcome::Landed(Some("first".into()))
        }
        _ => PokeOutcome::NotYet,
    }
}

#[test]
fn an_answer_after_the_deadline_changes_nothing() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits(10, 1_000).poke_timeout(millis(100)).unwrap());
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let mut poker = patient(&store).kind("kind".try_into().unwrap(), first_lands(&gate, &pokes));
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.overran, report.unreachable, report.backed_off, report.hung), (1, 1, 1, 1));
        gate.open();
        tick_until(&mut poker, 0, |report| {
            assert_eq!(report.landed, 0);
            report.late == 1
        });
        assert_eq!((pokes.load(Ordering::SeqCst), state(&store, "t")), (1, TaskState::Sensing));
        let poked: usize = (1..=10).map(|now| poker.tick(at(now)).unwrap().poked).sum();
        assert_eq!((poked, state(&store, "t")), (1, TaskState::Sensing), "it is poked again");
    }
}

#[test]
fn an_answer_does_not_end_what_registered_after_its_poke_began() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "target"), ("old", "target")], waits(10, 1_000));
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let mut poker = patient(&store)
            .wait_for_answers(millis(1))
            .kind("kind".try_into().unwrap(), first_lands(&gate, &pokes));
        tick_until(&mut poker, 0, |_| pokes.load(Ordering::SeqCst) == 1);
        register_again(&store, 1, ("t", "target"), waits(10, 1_000));
        sense(&store, 1, "kind", &[("joins", "target")], waits(10, 1_000));
        assert!(poker.tick(at(1)).unwrap().loaded >= 2);
        gate.open();
        let mut landed = 0;
        tick_until(&mut poker, 1, |report| {
            landed += report.landed;
            report.in_flight == 0 && landed > 0
        });
        let states = ["old", "t", "joins"].map(|task| state(&store, task));
        assert_eq!((landed, states), (1, [TaskState::Success, TaskState::Sensing, TaskState::Sensing]));
        tick_until(&mut poker, 12, |_| pokes.load(Ordering::SeqCst) >= 2);
    }
}

#[test]
fn a_sole_sensor_that_registers_again_is_poked_again_after_the_answer_to_its_first_registration() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits(500, 1_000));
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let mut poker = patient(&store)
            .wait_for_answers(millis(1))
            .kind("kind".try_into().unwrap(), first_lands(&gate, &pokes));
        tick_until(&mut poker, 0, |_| pokes.load(Ordering::SeqCst) == 1);
        register_again(&store, 1, ("t", "t"), waits(500, 1_000));
        poker.tick(at(1)).unwrap();
        assert_eq!(pokes.load(Ordering::SeqCst), 1, "a target is not poked twice at once");
        gate.open();
        tick_until(&mut poker, 1, |report| {
            assert_eq!(report.landed, 0);
            pokes.load(Ordering::SeqCst) == 2 && report.in_flight == 0
        });
        assert_eq!(state(&store, "t"), TaskState::Sensing);
    }
}

#[test]
fn a_hung_target_stays_known_when_its_last_sensor_goes_and_another_comes() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits(10, 1_000));
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let mut poker = patient(&store)
            .poke_timeout(millis(100))
            .kind("kind".try_into().unwrap(), first_lands(&gate, &pokes));
        assert_eq!(poker.tick(at(0)).unwrap().hung, 1);
        register_again(&store, 1, ("t", "t"), waits(10, 1_000));
        for now in 1..60 {
            let report = poker.tick(at(now)).unwrap();
            assert_eq!((report.groups, report.hung), (1, 1));
        }
        assert_eq!(pokes.load(Ordering::SeqCst), 1);
        gate.open();
        let mut late = 0;
        tick_until(&mut poker, 60, |report| {
            late += report.late;
            late == 1
        });
        let poked: usize = (61..700).map(|now| poker.tick(at(now)).unwrap().poked).sum();
        assert!(poked > 1, "{poked}");
    }
}

#[test]
fn a_clock_set_back_while_a_poke_runs_loses_no_group() {
    for store in stores() {
        sense(&store, 10_000, "kind", &[("t", "t")], waits(10, 1_000_000));
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let mut poker = patient(&store)
            .wait_for_answers(millis(1))
            .kind("kind".try_into().unwrap(), first_lands(&gate, &pokes));
        tick_until(&mut poker, 10_000, |_| pokes.load(Ordering::SeqCst) == 1);
        assert_eq!(poker.tick(at(5_000)).unwrap().sensors, 1);
        gate.open();
        tick_until(&mut poker, 5_001, |report| report.in_flight == 0);
        assert_eq!(state(&store, "t"), TaskState::Sensing, "it was learned of after that poke began");
        tick_until(&mut poker, 5_020, |_| pokes.load(Ordering::SeqCst) == 2);
    }
}

#[test]
fn a_loop_that_sleeps_is_woken_by_a_late_answer() {
    for store in stores() {
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        sense(&store, i64::try_from(started).unwrap() - 1, "kind", &[("t", "t")], waits(3_600, 100_000));
        let poke = |_: &PokeRequest| {
            std::thread::sleep(millis(100));
            PokeOutcome::Landed(None)
        };
        let hour = secs(3_600);
        let poker = patient(&store).wait_for_answers(millis(1)).refresh_every(hour).poke_timeout(hour);
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let mut landed = 0;
        drive(&mut poker, &SystemClock, &LoopHandle::new(), hour, |report| {
            landed += report.unwrap().landed;
            if landed == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!(state(&store, "t"), TaskState::Success);
    }
}

#[test]
fn ends_that_the_store_refused_are_kept_for_the_next_tick() {
    for inner in stores() {
        let (store, faults) = refusing(&inner);
        sense(&store, 0, "kind", &[("t", "t")], waits(1_000, 10_000));
        let (pokes, switch) = (Arc::new(AtomicUsize::new(0)), faults.clone());
        let counted = pokes.clone();
        let poke = move |_: &PokeRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            switch.refuse(TxMode::Write, 2);
            PokeOutcome::Landed(Some("kept".into()))
        };
        let mut poker: Poker = patient(&store).kind("kind".try_into().unwrap(), poke);
        assert!(poker.tick(at(0)).is_err());
        assert!(poker.tick(at(1)).is_err());
        assert_eq!(poker.tick(at(2)).unwrap().landed, 1);
        assert_eq!((pokes.load(Ordering::SeqCst), state(&store, "t")), (1, TaskState::Success));
        assert_eq!(events(&store)[0].value.as_deref(), Some("kept"));
    }
}

#[test]
fn who_joins_while_another_leaves_is_still_looked_for_at_once() {
    for store in stores() {
        sense(&store, 0, "kind", &[("stays", "target"), ("t", "target")], waits(3_600, 100_000));
        let pokes = Arc::new(AtomicUsize::new(0));
        let counted = pokes.clone();
        let poke = move |_: &PokeRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            PokeOutcome::NotYet
        };
        let mut poker = patient(&store).kind("kind".try_into().unwrap(), poke);
        poker.tick(at(0)).unwrap();
        let grid = (1..=3_600).find(|now| poker.tick(at(*now)).unwrap().poked == 1).unwrap();
        register_again(&store, grid + 5, ("t", "target"), waits(3_600, 100_000));
        assert_eq!(poker.tick(at(grid + 5)).unwrap().poked, 1);
        assert_eq!(pokes.load(Ordering::SeqCst), 3);
    }
}

#[test]
fn ends_that_the_store_refuses_for_long_make_no_target_poked_more_often_than_the_floor() {
    for answer in [PokeOutcome::NotYet, PokeOutcome::Unreachable("no route".into())] {
        for inner in stores() {
            let (store, faults) = refusing(&inner);
            sense(&inner, 0, "kind", &[("t", "t")], waits(1_000, 100));
            let pokes = Arc::new(AtomicUsize::new(0));
            let (counted, given) = (pokes.clone(), answer.clone());
            let poke = move |_: &PokeRequest| {
                counted.fetch_add(1, Ordering::SeqCst);
                given.clone()
            };
            let window = if answer == PokeOutcome::NotYet { secs(10_000) } else { secs(50) };
            let poker = patient(&store).min_interval(secs(10)).retry_window(window).max_pause(secs(30));
            let mut poker = poker.kind("kind".try_into().unwrap(), poke);
            poker.tick(at(0)).unwrap();
            faults.refuse(TxMode::Write, u32::MAX);
            let failed = (1..=200).filter(|now| poker.tick(at(*now)).is_err()).count();
            assert!(failed >= 100, "{failed}");
            let pokes = pokes.load(Ordering::SeqCst);
            assert!((2..=20).contains(&pokes), "{answer:?}: {pokes}");
            faults.refuse(TxMode::Write, 0);
            let report = poker.tick(at(201)).unwrap();
            assert_eq!(report.timed_out + report.gave_up, 1);
        }
    }
}
