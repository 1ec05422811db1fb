//! What observers receive is true, and what they do wrong changes nothing.

mod all;
mod capacity;
mod recorder;
#[path = "../stores/mod.rs"]
mod stores;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use recorder::{Panicking, Recorder, Told};
use stationmaster::admission::Reason;
use stationmaster::service::Observer;
use stores::{Kind, kinds};
use world::{Op, World, ops};

fn run(kind: &Kind, observer: Option<Arc<dyn Observer>>, ops: &[Op]) -> World {
    let mut world = World::new(kind.make(), observer);
    ops.iter().for_each(|op| world.step(op));
    world
}

fn told(kind: &Kind, ops: &[Op]) -> (Told, World) {
    let recorder = Arc::new(Recorder::default());
    let world = run(kind, Some(recorder.clone()), ops);
    (recorder.told(), world)
}

/// Checks random worlds on every store, or this many if they are sampled.
fn on_worlds(sample: u32, check: impl Fn(&Kind, &[Op]) -> Result<(), TestCaseError>) {
    for kind in &kinds() {
        let config = ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(kind.cases(64, sample))
        };
        let outcome = TestRunner::new(config).run(&ops(), |ops| check(kind, &ops));
        outcome.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    }
}

/// Counters and gauges are what reports, answers and the tasks' states say; transactions are those that the store had.
#[test]
fn what_is_reported_is_the_truth() {
    on_worlds(2, |kind, ops| {
        let (told, world) = told(kind, ops);
        let truth = world.whole_truth();
        prop_assert_eq!(&told.counters, &truth.counters);

        let deferred: BTreeMap<String, f64> = Reason::NAMES
            .into_iter()
            .map(|name| (name, told.gauges.get(&format!("stationmaster_refused{{reason={name:?}}}"))))
            .filter_map(|(name, value)| Some((name.to_owned(), *value.filter(|value| **value > 0.0)?)))
            .collect();
        prop_assert_eq!(deferred, truth.deferred);

        prop_assert_eq!(told.samples("stationmaster_wait_seconds{}"), &truth.waited);
        let pokes = told.samples("stationmaster_poke_duration_seconds{kind=\"file\"}");
        prop_assert_eq!(pokes.len(), truth.calls_of_pokes);
        for service in ["admitter", "upkeep", "poker", "feed"] {
            let series = format!("stationmaster_tick_duration_seconds{{service={service:?}}}");
            let ticks = told.counters.iter().filter(|(name, _)| {
                name.starts_with(&format!("stationmaster_ticks_total{{service={service:?}"))
            });
            prop_assert_eq!(told.samples(&series).len() as u64, ticks.map(|(_, count)| count).sum::<u64>());
        }
        for mode in ["read", "write"] {
            let series = format!("stationmaster_transaction_duration_seconds{{mode={mode:?}}}");
            let all = told.counters.iter().filter(|(name, _)| {
                name.starts_with(&format!("stationmaster_transactions_total{{mode={mode:?}"))
            });
            prop_assert_eq!(told.samples(&series).len() as u64, all.map(|(_, count)| count).sum::<u64>());
        }
        Ok(())
    });
}

/// An observer that panics at every call, one that listens, and none: the same answers, the same tasks.
#[test]
fn an_observer_that_panics_changes_nothing() {
    on_worlds(1, |kind, ops| {
        let [alone, heard, harmed] =
            [None, Some(Arc::new(Recorder::default()) as Arc<dyn Observer>), Some(Arc::new(Panicking))]
                .map(|observer| run(kind, observer, ops));
        prop_assert_eq!(&alone.answers, &heard.answers);
        prop_assert_eq!(&alone.answers, &harmed.answers);
        prop_assert_eq!(alone.tasks(), heard.tasks());
        prop_assert_eq!(alone.tasks(), harmed.tasks());
        prop_assert_eq!(alone.truth, harmed.truth);
        Ok(())
    });
}

/// The worlds above come by everything that is counted in words, each often enough to be compared.
#[test]
fn the_worlds_are_not_empty() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..64 {
        let ops = ops().new_tree(&mut runner).unwrap().current();
        seen.extend(run(&stores::memory(), None, &ops).truth.counters.into_keys());
    }
    let missing: Vec<&str> = [
        "admission_conflicts_total{}",
        "events_total{result=\"accepted\"}",
        "events_total{result=\"refused\"}",
        "feed_forgotten_total{}",
        "finished_total{became=\"ready\"}",
        "finished_total{became=\"retry\"}",
        "finished_total{became=\"stale\"}",
        "forgotten_total{}",
        "pokes_saved_total{kind=\"file\"}",
        "pokes_total{kind=\"file\",outcome=\"failed\"}",
        "pokes_total{kind=\"file\",outcome=\"landed\"}",
        "pokes_total{kind=\"file\",outcome=\"not_yet\"}",
        "pokes_total{kind=\"file\",outcome=\"unreachable\"}",
        "promoted_total{}",
        "reaped_total{became=\"failed\"}",
        "reaped_total{became=\"ready\"}",
        "registered_total{answer=\"not_running\"}",
        "sensors_ended_total{reason=\"landed\"}",
        "sensors_ended_total{reason=\"failed\"}",
        "sensors_ended_total{reason=\"timed_out\"}",
        "sensors_ended_total{reason=\"unreachable\"}",
        "shards_gained_total{}",
        "stale_calls_total{call=\"renew\"}",
        "stale_calls_total{call=\"start\"}",
        "task_moves_total{to=\"skipped\"}",
        "task_moves_total{to=\"sensing\"}",
        "ticks_total{service=\"admitter\",result=\"io\"}",
        "ticks_total{service=\"feed\",result=\"full\"}",
        "ticks_total{service=\"upkeep\",result=\"full\"}",
    ]
    .into_iter()
    .filter(|series| !seen.contains(&format!("stationmaster_{series}")))
    .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
