//! What a sensor asks for is bounded by the operator, and by its own timeout.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::TaskState;
use stationmaster::sensor::{EndReason, PokeOutcome, Settings};
use stationmaster::service::{LoopHandle, PokeRequest, Service};

use crate::scene::*;
use crate::stores::stores;

/// As long as no one waits.
const AGES: Duration = Duration::from_secs(1_000_000);

/// Opens the gate of a poke when the test ends, however it ends: a poker that is dropped waits for its pokes.
struct OpensAtEnd(Arc<Gate>);

impl Drop for OpensAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn waits_for_ages(interval: u64, timeout: u64) -> Settings {
    waits(interval, timeout).poke_timeout(AGES).unwrap()
}

#[test]
fn a_huge_poke_timeout_neither_keeps_a_thread_nor_its_sensor_from_timing_out() {
    for store in stores() {
        sense(&store, 0, "kind", &[("a", "hang-a"), ("b", "hang-b")], waits_for_ages(1, 1));
        let gate = Arc::new(Gate::default());
        let held = gate.clone();
        let poke = move |request: &PokeRequest| {
            if request.context.as_str().contains("hang") {
                held.pass();
            }
            PokeOutcome::Landed(None)
        };
        let poker = patient(&store).threads(1).wait_for_answers(millis(1)).poke_timeout(millis(200));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let _at_end = OpensAtEnd(gate.clone());
        tick_until(&mut poker, 0, |report| report.in_flight == 1);
        // One of them has the thread, the other waits for it. Both end when they should.
        tick_until(&mut poker, 2, |_| [state(&store, "a"), state(&store, "b")] == [TaskState::Failed; 2]);
        assert!(events(&store).iter().all(|event| event.reason == Some(EndReason::TimedOut)));

        // The thread is given up, too, and another looks for the others.
        sense(&store, 3, "kind", &[("c", "good")], waits(1, 1_000_000));
        let mut hung = 0;
        tick_until(&mut poker, 3, |report| {
            hung = hung.max(report.hung);
            state(&store, "c") == TaskState::Success
        });
        // Two, if the machine was so slow that the second sensor's poke began, too.
        assert!((1..=2).contains(&hung), "{hung}");
    }
}

#[test]
fn the_operator_bounds_the_poke_timeouts_of_sensors() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "t")], waits_for_ages(10, 10_000_000));
        let gate = Arc::new(Gate::default());
        let held = gate.clone();
        let poke = move |_: &PokeRequest| {
            held.pass();
            PokeOutcome::NotYet
        };
        let poker = patient(&store).wait_for_answers(millis(1)).max_poke_timeout(secs(1));
        let mut poker =
            poker.kind("kind".try_into().unwrap(), poke.clone()).kind("other".try_into().unwrap(), poke);
        let at_end = OpensAtEnd(gate.clone());
        let began = Instant::now();
        tick_until(&mut poker, 0, |report| report.overran == 1 && report.hung == 1);
        assert!(began.elapsed() >= secs(1), "{:?}", began.elapsed());

        // Nor is leaving held up by what a sensor asks for.
        sense(&store, 20, "other", &[("u", "u")], waits_for_ages(10, 10_000_000));
        tick_until(&mut poker, 20, |report| report.in_flight == 1);
        let (left, has_left) = std::sync::mpsc::channel();
        let leaving = std::thread::spawn(move || left.send(poker.leave()));
        has_left.recv_timeout(secs(60)).expect("it leaves").unwrap();
        drop(at_end);
        leaving.join().unwrap().unwrap();
    }
}

#[test]
fn the_first_sensor_that_times_out_does_not_cut_short_the_poke_of_the_others() {
    for store in stores() {
        sense(&store, 0, "kind", &[("short", "t")], waits_for_ages(1, 1));
        sense(&store, 0, "kind", &[("long", "t")], waits_for_ages(1, 1_000_000));
        let gate = Arc::new(Gate::default());
        let (held, began) = (gate.clone(), Arc::new(Mutex::new(None)));
        let first = began.clone();
        let poke = move |_: &PokeRequest| {
            first.lock().get_or_insert_with(Instant::now);
            held.pass();
            PokeOutcome::Landed(None)
        };
        let poker =
            patient(&store).wait_for_answers(millis(1)).poke_timeout(millis(100)).refresh_every(secs(3_600));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        let _at_end = OpensAtEnd(gate.clone());
        // Its loop is woken when the poke answers: nothing but the timeout makes it tick before.
        poker.woken_by(&LoopHandle::new());
        let mut next = None;
        tick_until(&mut poker, 0, |report| {
            next = report.next_due;
            began.lock().is_some() && report.in_flight == 1
        });
        assert_eq!(next, Some(at(1) + millis(100)));
        tick_until(&mut poker, 2, |report| {
            assert_eq!(report.overran, 0);
            state(&store, "short") == TaskState::Failed
        });
        // Past what was left to the short one when the poke began.
        tick_until(&mut poker, 2, |report| {
            assert_eq!((report.overran, report.in_flight), (0, 1));
            began.lock().is_some_and(|began| began.elapsed() > millis(1_300))
        });
        gate.open();
        tick_until(&mut poker, 2, |_| state(&store, "long") == TaskState::Success);
    }
}

/// Its timeout passed while no worker ran. The bound on a poke's time counts from the look, not from the timeout.
#[test]
fn a_sensor_that_timed_out_while_nobody_looked_still_has_its_last_look() {
    for store in stores() {
        sense(&store, 0, "kind", &[("a", "there")], waits(1, 5));
        let poke = |_: &PokeRequest| {
            std::thread::sleep(millis(50));
            PokeOutcome::Landed(None)
        };
        let mut poker = patient(&store).kind("kind".try_into().unwrap(), poke);
        tick_until(&mut poker, 1_000, |_| state(&store, "a").is_end());
        assert_eq!(state(&store, "a"), TaskState::Success);
    }
}
