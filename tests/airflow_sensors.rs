//! The scenarios of Airflow's own tests of its smart sensor, and for each defect that it had a test that ours does not have it.
//!
//! By a clock that the test moves, on every store. The defects are numbered as in `docs/sensors.md`; hanging pokes (S4) are
//! tested with the poker, open files (S14) with the log.

mod stores;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stationmaster::canonical::PokeContext;
use stationmaster::fingerprint::Fingerprint;
use stationmaster::id::SensorKind;
use stationmaster::ops::{Mark, Marked, Registered};
use stationmaster::sensor::{
    EndReason, Ineligible, NewSensor, OnMissed, PokeOutcome, Settings, SmartSensorConfig,
};
use stationmaster::service::{Admitter, PokeRequest, Poker, Service};
use stationmaster::store::contract::SensorState;
use stationmaster::store::{Store, TxMode};
use stationmaster::task::Feed;
use stationmaster::testing::FaultStore;
use stationmaster::testing::raw;
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::{stores, told};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "dag", "2019-01-01", task).unwrap()
}

fn waits(interval: u64, timeout: u64) -> Settings {
    Settings::new(secs(interval), secs(timeout)).unwrap()
}

/// A running task of this key, as the sensor that it will be.
fn running(
    store: &Arc<dyn Store>,
    now: i64,
    key: &TaskKey,
    kind: &str,
    context: &str,
    settings: Settings,
) -> NewSensor {
    store.write(|tx| tx.enqueue(at(now), &[NewTask::new(key.clone()).feed(Feed::EndsAndSensors)])).unwrap();
    let mut admitter = Admitter::new(store.clone(), "worker".try_into().unwrap());
    let lease = admitter.tick(at(now)).unwrap().granted[0].lease_ref();
    store.write(|tx| tx.start(at(now), &[lease])).unwrap();
    let (kind, context) = (SensorKind::new(kind).unwrap(), PokeContext::from_json(context).unwrap());
    NewSensor::new(lease, kind, context, settings)
}

fn sense(store: &Arc<dyn Store>, now: i64, task: &str, context: &str, settings: Settings) {
    let sensor = running(store, now, &key(task), "kind", context, settings);
    let answer = store.write(|tx| tx.register(at(now), std::slice::from_ref(&sensor))).unwrap();
    assert!(matches!(answer[..], [Registered::Waiting(_)]));
}

fn task(store: &Arc<dyn Store>, key: &TaskKey) -> TaskRecord {
    store.read(|tx| tx.tasks(std::slice::from_ref(key))).unwrap().remove(0).unwrap()
}

fn state(store: &Arc<dyn Store>, name: &str) -> TaskState {
    task(store, &key(name)).state
}

/// The contexts that were poked, in order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn count(&self, context: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|seen| *seen == context).count()
    }

    fn all(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A poker whose pokes are seen, and answered like this.
fn poker(
    store: &Arc<dyn Store>,
    seen: &Seen,
    answer: impl Fn(&str) -> PokeOutcome + Send + Sync + 'static,
) -> Poker {
    let seen = seen.clone();
    let poke = move |request: &PokeRequest| {
        seen.0.lock().unwrap().push(request.context.as_str().to_owned());
        answer(request.context.as_str())
    };
    Poker::new(store.clone(), "poker".try_into().unwrap())
        .wait_for_answers(Duration::from_secs(60))
        .kind("kind".try_into().unwrap(), poke)
}

fn not_yet(_: &str) -> PokeOutcome {
    PokeOutcome::NotYet
}

#[test]
fn s_1_registering_makes_the_task_and_its_row_sensing() {
    for store in stores() {
        sense(&store, 0, "sensor", r#"{"table":"a"}"#, waits(10, 60));
        assert_eq!(state(&store, "sensor"), TaskState::Sensing);
        let row = store.read(|tx| tx.sensors(&[key("sensor")])).unwrap().remove(0).unwrap();
        assert_eq!((row.kind.as_str(), row.state, row.attempt), ("kind", SensorState::Waiting, 1));
        assert!(task(&store, &key("sensor")).lease.is_none());
    }
}

#[test]
fn s_2_a_cycle_loads_one_then_three() {
    for store in stores() {
        let mut poker = poker(&store, &Seen::default(), not_yet);
        sense(&store, 0, "a", r#"{"n":1}"#, waits(10, 60));
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.loaded, report.sensors), (1, 1));
        sense(&store, 1, "b", r#"{"n":2}"#, waits(10, 60));
        sense(&store, 1, "c", r#"{"n":3}"#, waits(10, 60));
        let report = poker.tick(at(1)).unwrap();
        assert_eq!((report.loaded, report.sensors), (2, 3), "only what is new is read");
        assert_eq!(poker.tick(at(2)).unwrap().loaded, 0);
    }
}

#[test]
fn s_3_of_two_equal_and_a_different_one_the_equal_ones_land_together() {
    for store in stores() {
        for (name, context) in [("a", r#"{"n":1}"#), ("b", r#"{"n":1}"#), ("c", r#"{"n":2}"#)] {
            sense(&store, 0, name, context, waits(10, 600));
        }
        let seen = Seen::default();
        let landed = |context: &str| {
            if context.contains('1') { PokeOutcome::Landed(None) } else { PokeOutcome::NotYet }
        };
        let report = poker(&store, &seen, landed).tick(at(0)).unwrap();
        assert_eq!((report.poked, report.saved, report.landed, report.groups), (2, 1, 2, 1));
        assert_eq!(
            ["a", "b", "c"].map(|name| state(&store, name)),
            [TaskState::Success, TaskState::Success, TaskState::Sensing]
        );
        assert_eq!(seen.count(r#"{"n":1}"#), 1);
    }
}

#[test]
fn s_4_the_shortest_timeout_fails_the_one_and_not_the_other() {
    for store in stores() {
        let shortest = Settings::new(secs(10), Duration::from_micros(1)).unwrap();
        sense(&store, 0, "short", r#"{"n":1}"#, shortest);
        sense(&store, 0, "long", r#"{"n":2}"#, waits(10, 600));
        let seen = Seen::default();
        let report = poker(&store, &seen, not_yet).tick(at(1)).unwrap();
        assert_eq!((report.timed_out, report.sensors), (1, 1));
        assert_eq!(
            ["short", "long"].map(|name| state(&store, name)),
            [TaskState::Failed, TaskState::Sensing]
        );
        assert_eq!(seen.all(), 2, "it was looked at once before");
    }
}

#[test]
fn s_5_a_timeout_of_ten_in_steps_of_six() {
    for store in stores() {
        sense(&store, 0, "t", "{}", waits(1, 10));
        let mut poker = poker(&store, &Seen::default(), not_yet);
        let states = [0, 6, 12].map(|now| {
            poker.tick(at(now)).unwrap();
            state(&store, "t")
        });
        assert_eq!(states, [TaskState::Sensing, TaskState::Sensing, TaskState::Failed]);
    }
}

#[test]
fn s_6_a_failure_callback_makes_it_ineligible() {
    for store in stores() {
        let sensor = running(&store, 0, &key("t"), "kind", "{}", waits(1, 10)).has_callbacks(true);
        let config = SmartSensorConfig::default();
        let answer =
            store.write(|tx| tx.register_with(at(0), &config, std::slice::from_ref(&sensor))).unwrap();
        assert_eq!(answer, [Registered::Ineligible(Ineligible::HasCallbacks)]);
        assert_eq!(state(&store, "t"), TaskState::Running);
    }
}

#[test]
fn s_7_the_length_of_a_cycle_is_reported() {
    for store in stores() {
        sense(&store, 0, "t", "{}", waits(1, 10));
        let slow = |_: &str| {
            std::thread::sleep(Duration::from_millis(20));
            PokeOutcome::NotYet
        };
        let report = poker(&store, &Seen::default(), slow).tick(at(0)).unwrap();
        assert!(report.duration >= Duration::from_millis(20));
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["duration_s"].as_f64().unwrap() >= 0.02, "{json}");
    }
}

#[test]
fn no_s1_no_s10_equal_sensors_of_other_processes_share_whatever_the_order_of_their_fields() {
    let context = PokeContext::from_json("{}").unwrap();
    let kind = SensorKind::new("hive.NamedPartition").unwrap();
    // As computed by another process, on another machine.
    assert_eq!(Fingerprint::new(&kind, &context).to_string(), "97d127c9d122e327");
    for store in stores() {
        sense(&store, 0, "a", r#"{"table": "sales", "ds": 1.0}"#, waits(10, 60));
        sense(&store, 0, "b", r#"{"ds":1,"table":"sales"}"#, waits(10, 60));
        let report = poker(&store, &Seen::default(), |_| PokeOutcome::Landed(None)).tick(at(0)).unwrap();
        assert_eq!((report.poked, report.landed), (1, 2));
    }
}

#[test]
fn no_s2_who_registers_after_a_landing_waits_for_no_interval() {
    for store in stores() {
        sense(&store, 0, "first", "{}", waits(3_600, 100_000));
        let mut poker = poker(&store, &Seen::default(), |_| PokeOutcome::Landed(None));
        assert_eq!(poker.tick(at(0)).unwrap().landed, 1);
        sense(&store, 1, "second", "{}", waits(3_600, 100_000));
        assert_eq!(poker.tick(at(1)).unwrap().landed, 1);
    }
}

#[test]
fn no_s2_who_joins_a_target_that_still_waits_is_looked_for_at_once() {
    for store in stores() {
        let seen = Seen::default();
        sense(&store, 0, "first", "{}", waits(3_600, 100_000));
        let mut poker = poker(&store, &seen, not_yet);
        poker.tick(at(0)).unwrap();
        let grid = (1..=3_600).find(|now| poker.tick(at(*now)).unwrap().poked == 1).unwrap();
        sense(&store, grid + 1, "second", "{}", waits(3_600, 100_000));
        let report = poker.tick(at(grid + 1)).unwrap();
        assert_eq!((report.loaded, report.poked, report.saved), (1, 1, 1), "and both share the look");
        let pokes: usize = (grid + 2..grid + 3_600).map(|now| poker.tick(at(now)).unwrap().poked).sum();
        assert_eq!((pokes, poker.tick(at(grid + 3_600)).unwrap().poked), (0, 1), "the grid is as it was");
    }
}

#[test]
fn no_s3_a_task_that_is_gone_is_not_polled() {
    for store in stores() {
        sense(&store, 0, "t", "{}", waits(5, 100));
        let seen = Seen::default();
        let mut poker = poker(&store, &seen, not_yet);
        poker.tick(at(0)).unwrap();
        store.write(|tx| tx.mark(at(1), &[Mark::new(key("t"), TaskState::Failed, "gone")])).unwrap();
        assert_eq!(told(&store)[0].reason, Some(EndReason::Cancelled));
        let forgotten = store.write(|tx| Ok(raw(tx).forget_ended(TaskState::Failed, at(2), at(2), 9)?));
        assert_eq!((forgotten.unwrap(), told(&store).len()), (1, 1), "the feed tells of it all the same");
        let reports: Vec<_> = (2..200).map(|now| poker.tick(at(now)).unwrap()).collect();
        assert!(reports.iter().all(|report| report.sensors == 0 && report.timed_out == 0));
        assert_eq!(seen.all(), 1);
    }
}

#[test]
fn no_s5_each_sensor_has_its_own_interval_above_the_floor() {
    for store in stores() {
        sense(&store, 0, "often", r#"{"n":1}"#, waits(5, 10_000));
        sense(&store, 0, "seldom", r#"{"n":2}"#, waits(60, 10_000));
        sense(
            &store,
            0,
            "eager",
            r#"{"n":3}"#,
            Settings::new(Duration::from_millis(1), secs(10_000)).unwrap(),
        );
        let seen = Seen::default();
        let mut poker = poker(&store, &seen, not_yet);
        for now in 0..=600 {
            poker.tick(at(now)).unwrap();
        }
        let counts = [1, 2, 3].map(|n| seen.count(&format!("{{\"n\":{n}}}")));
        assert_eq!(counts, [121, 11, 601], "the first is at once, then on the grid; the floor is a second");
    }
}

#[test]
fn no_s6_mapped_tasks_get_the_value_and_soft_fail_skips() {
    for store in stores() {
        let mapped = [key("m").mapped(0), key("m").mapped(1)];
        for key in &mapped {
            let sensor = running(&store, 0, key, "kind", r#"{"n":1}"#, waits(10, 60));
            store.write(|tx| tx.register(at(0), std::slice::from_ref(&sensor))).unwrap();
        }
        sense(&store, 0, "soft", r#"{"n":2}"#, waits(10, 60).on_missed(OnMissed::Skip));
        let landed = |context: &str| match context.contains('1') {
            true => PokeOutcome::Landed(Some("part-7".into())),
            false => PokeOutcome::Failed("never".into()),
        };
        poker(&store, &Seen::default(), landed).tick(at(0)).unwrap();
        for key in &mapped {
            let task = task(&store, key);
            assert_eq!((task.state, task.value.as_deref()), (TaskState::Success, Some("part-7")));
        }
        assert_eq!(state(&store, "soft"), TaskState::Skipped);
        assert_eq!(told(&store).len(), 3, "one for each callback");
    }
}

#[test]
fn no_s7_two_kinds_with_equal_contexts_share_nothing() {
    for store in stores() {
        sense(&store, 0, "a", "{}", waits(10, 60));
        let other = running(&store, 0, &key("b"), "other", "{}", waits(10, 60));
        store.write(|tx| tx.register(at(0), std::slice::from_ref(&other))).unwrap();
        let mut poker = poker(&store, &Seen::default(), |_| PokeOutcome::Landed(None))
            .kind("other".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::NotYet);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.poked, report.landed), (2, 1));
        assert_eq!(["a", "b"].map(|name| state(&store, name)), [TaskState::Success, TaskState::Sensing]);
    }
}

#[test]
fn no_s8_other_numbers_of_codes_and_shards_strand_nothing() {
    for store in stores() {
        for n in 0..40 {
            sense(&store, 0, &format!("t{n}"), &format!("{{\"n\":{n}}}"), waits(10, 10_000));
        }
        let mut before = poker(&store, &Seen::default(), not_yet);
        assert_eq!(before.tick(at(0)).unwrap().sensors, 40);
        before.leave().unwrap();
        for (now, codes, shards) in [(100, 7, 3), (200, 1, 1), (300, 10_000, 5)] {
            let numbers = (NonZeroU32::new(codes).unwrap(), NonZeroU32::new(shards).unwrap());
            let mut poker = Poker::new(store.clone(), "poker".try_into().unwrap())
                .shard_codes(numbers.0)
                .shards(numbers.1)
                .kind("kind".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::NotYet);
            assert_eq!(poker.tick(at(now)).unwrap().sensors, 40, "{codes} codes, {shards} shards");
            poker.leave().unwrap();
        }
    }
}

#[test]
fn no_s9_a_worker_that_dies_has_an_heir() {
    for store in stores() {
        sense(&store, 0, "t", "{}", waits(10, 10_000));
        let dead = poker(&store, &Seen::default(), not_yet).tick(at(0)).unwrap();
        assert_eq!(dead.shards, 16);
        let mut heir = Poker::new(store.clone(), "heir".try_into().unwrap())
            .wait_for_answers(Duration::from_secs(60))
            .kind("kind".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::Landed(None));
        let landed = (1..60).find(|now| heir.tick(at(*now)).unwrap().landed == 1);
        // The lease, and then one interval.
        assert!(landed.is_some_and(|now| (30..=40).contains(&now)), "{landed:?}");
    }
}

#[test]
fn no_s11_a_mark_is_known_at_once_and_a_late_answer_changes_nothing() {
    for store in stores() {
        sense(&store, 0, "t", "{}", waits(10, 10_000));
        let inner = store.clone();
        let marks_meanwhile = move |_: &str| {
            let skipped = Mark::new(key("t"), TaskState::Skipped, "by hand");
            let marked = inner.write(|tx| tx.mark(at(0), std::slice::from_ref(&skipped))).unwrap();
            assert_eq!(marked, [Marked::Ended(TaskState::Sensing)]);
            PokeOutcome::Landed(Some("too late".into()))
        };
        let seen = Seen::default();
        let mut poker = poker(&store, &seen, marks_meanwhile);
        assert_eq!(poker.tick(at(0)).unwrap().landed, 0);
        let task = task(&store, &key("t"));
        assert_eq!((task.state, task.value), (TaskState::Skipped, None));
        let reasons: Vec<_> = told(&store).iter().map(|event| event.reason).collect();
        assert_eq!(reasons, [Some(EndReason::Cancelled)]);
        for now in 1..100 {
            assert_eq!(poker.tick(at(now)).unwrap().sensors, 0);
        }
        assert_eq!(seen.all(), 1);
    }
}

#[test]
fn no_s12_a_hot_target_costs_one_poke() {
    for store in stores() {
        for n in 0..100 {
            sense(&store, 0, &format!("t{n}"), "{}", waits(10, 10_000));
        }
        let report = poker(&store, &Seen::default(), |_| PokeOutcome::Landed(None)).tick(at(0)).unwrap();
        assert_eq!((report.poked, report.saved, report.landed), (1, 99, 100));
    }
}

#[test]
fn no_s13_a_landing_that_could_not_be_written_is_written_by_the_next_cycle() {
    for inner in stores() {
        let faults = Arc::new(FaultStore::new(inner));
        let store: Arc<dyn Store> = faults.clone();
        sense(&store, 0, "t", "{}", waits(3_600, 100_000));
        let (breaks, first) = (faults.clone(), AtomicBool::new(true));
        let mut poker = poker(&store, &Seen::default(), move |_| {
            let fails = if first.swap(false, Ordering::SeqCst) { u32::MAX } else { 0 };
            breaks.refuse(TxMode::Write, fails);
            PokeOutcome::Landed(Some("7".into()))
        });
        assert!(poker.tick(at(0)).is_err());
        assert_eq!(state(&store, "t"), TaskState::Sensing);
        faults.refuse(TxMode::Write, 0);
        assert_eq!(poker.tick(at(1)).unwrap().landed, 1);
        let task = task(&store, &key("t"));
        assert_eq!((task.state, task.value.as_deref()), (TaskState::Success, Some("7")));
        assert_eq!(told(&store).len(), 1);
    }
}
