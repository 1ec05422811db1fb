//! Kinds that look for many targets in one call.

use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;
use stationmaster::TaskState;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeMany, PokeReport, PokeRequest, Service};
use stationmaster::store::Store;

use crate::scene::*;
use crate::stores::stores;

/// One tick over 25 targets, ten at most in a call, the odd of which have two sensors.
fn tick(store: &Arc<dyn Store>, poke: impl PokeMany + 'static) -> PokeReport {
    let names: Vec<(String, String)> = (0..25)
        .flat_map(|n| (0..1 + n % 2).map(move |twin| (format!("t{n}-{twin}"), format!("{n}"))))
        .collect();
    let tasks: Vec<(&str, &str)> =
        names.iter().map(|(task, target)| (task.as_str(), target.as_str())).collect();
    sense(store, 0, "kind", &tasks, waits(10, 1_000));
    let ten = NonZeroUsize::new(10).unwrap();
    let mut poker = patient(store).kind_many("kind".try_into().unwrap(), ten, poke);
    poker.tick(at(0)).unwrap()
}

#[test]
fn each_target_gets_its_own_answer() {
    for store in stores() {
        let calls: Arc<Mutex<Vec<usize>>> = Arc::default();
        let seen = calls.clone();
        let report = tick(&store, move |requests: &[PokeRequest]| {
            seen.lock().push(requests.len());
            let seven = |request: &PokeRequest| request.context.as_str() == r#"{"target":"7"}"#;
            let answer = |request: &PokeRequest| match seven(request) {
                true => PokeOutcome::Landed(Some(request.sensors.to_string())),
                false => PokeOutcome::NotYet,
            };
            requests.iter().map(answer).collect()
        });
        assert_eq!((report.poked, report.saved, report.landed, report.unreachable), (25, 12, 2, 0));
        let calls = calls.lock();
        assert_eq!(calls.iter().sum::<usize>(), 25);
        assert!(calls.len() < 10 && calls.iter().all(|targets| *targets <= 10), "{calls:?}");
        assert!(events(&store).iter().all(|event| event.value.as_deref() == Some("2")));
        assert_eq!(
            ["t7-0", "t7-1", "t6-0"].map(|task| state(&store, task)),
            [TaskState::Success, TaskState::Success, TaskState::Sensing]
        );
    }
}

#[test]
fn a_wrong_number_of_answers_says_nothing_of_any_target() {
    for answers in [0_usize, 9, 11, 26] {
        for store in stores() {
            let report = tick(&store, move |requests: &[PokeRequest]| {
                let right = requests.len() != 10;
                vec![PokeOutcome::Landed(None); if right { requests.len() } else { answers }]
            });
            assert_eq!((report.poked, report.unreachable), (25, 20), "{answers}");
            assert_eq!(events(&store).len(), report.landed);
        }
    }
}

#[test]
fn a_panic_is_an_answer_to_all() {
    for store in stores() {
        let report = tick(&store, |_: &[PokeRequest]| -> Vec<PokeOutcome> { panic!("on purpose") });
        assert_eq!((report.poked, report.unreachable, report.backed_off), (25, 25, 25));
        assert!(events(&store).is_empty());
    }
}

#[test]
fn a_call_that_hangs_says_of_all_its_targets_that_it_took_too_long() {
    for store in stores() {
        sense(&store, 0, "kind", &[("a", "a"), ("b", "b"), ("c", "c")], waits(10, 1_000));
        let gate = Arc::new(Gate::default());
        let held = gate.clone();
        let poke = move |requests: &[PokeRequest]| {
            held.pass();
            vec![PokeOutcome::Landed(None); requests.len()]
        };
        let ten = NonZeroUsize::new(10).unwrap();
        let mut poker =
            patient(&store).poke_timeout(millis(100)).kind_many("kind".try_into().unwrap(), ten, poke);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.overran, report.hung, report.landed), (3, 1, 0), "one thread, three targets");
        gate.open();
        let mut late = 0;
        tick_until(&mut poker, 0, |report| {
            late += report.late;
            report.hung == 0 && late > 0
        });
        assert_eq!((late, state(&store, "a")), (3, TaskState::Sensing));
    }
}
