//! Sensors that must not be: each is refused with a typed error or a value, and nothing is changed.

mod stores;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stationmaster::canonical::{CanonicalError, MAX_BYTES, PokeContext};
use stationmaster::error::{Invalid, Result, StoreError, StoreErrorKind};
use stationmaster::id::SensorKind;
use stationmaster::ops::{Finish, Finished, Outcome, Registered};
use stationmaster::sensor::{
    EndReason, Ineligible, NewSensor, PokeOutcome, SensorRecord, Settings, SmartSensorConfig,
};
use stationmaster::service::kinds::{Condition, FileExists, file_exists};
use stationmaster::service::{Admitter, PokeRequest, Poker, Service};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::task::Feed;
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::{stores, told};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// Admits these tasks, and starts them if asked to.
fn leases(store: &Arc<dyn Store>, names: &[&str], started: bool) -> Vec<LeaseRef> {
    let tasks: Vec<NewTask> =
        names.iter().map(|name| NewTask::new(key(name)).feed(Feed::EndsAndSensors)).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let leases: Vec<LeaseRef> =
        admitter.tick(at(0)).unwrap().granted.iter().map(TaskRecord::lease_ref).collect();
    assert_eq!(leases.len(), names.len());
    if started {
        store.write(|tx| tx.start(at(0), &leases)).unwrap();
    }
    leases
}

fn sensor(lease: LeaseRef, kind: &str) -> NewSensor {
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
    NewSensor::new(lease, SensorKind::new(kind).unwrap(), PokeContext::from_json("{}").unwrap(), settings)
}

/// All that a registration could change.
fn seen(
    store: &Arc<dyn Store>,
    names: &[&str],
) -> (Vec<Option<TaskRecord>>, Vec<Option<SensorRecord>>, u64, i64) {
    let keys: Vec<TaskKey> = names.iter().map(|name| key(name)).collect();
    store
        .read(|tx| {
            assert_eq!(tx.audit()?, []);
            let used = tx.all_pools()?.iter().map(|pool| pool.used).sum();
            Ok((tx.tasks(&keys)?, tx.sensors(&keys)?, raw(tx).sensor_changes()?.last, used))
        })
        .unwrap()
}

#[test]
fn contexts_that_are_no_json_objects_or_too_large_are_refused() {
    for (text, found) in [("[1]", "an array"), ("\"x\"", "a string"), ("null", "null"), ("1", "a number")] {
        assert_eq!(PokeContext::from_json(text), Err(CanonicalError::NotAnObject { found }));
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(PokeContext::from_value(&value), Err(CanonicalError::NotAnObject { found }));
    }
    assert!(matches!(PokeContext::from_json("{"), Err(CanonicalError::Syntax { .. })));
    assert!(matches!(PokeContext::from_json(""), Err(CanonicalError::Syntax { .. })));
    for number in ["NaN", "Infinity", "-Infinity"] {
        let error = PokeContext::from_json(&format!("{{\"x\":{number}}}")).unwrap_err();
        assert!(error.to_string().contains("$.x"), "{error}");
    }
    assert!(matches!(PokeContext::from_json(r#"{"x":1e999}"#), Err(CanonicalError::Number { .. })));

    let frame = json!({"x": ""}).to_string().len();
    let fits = json!({"x": "a".repeat(MAX_BYTES - frame)});
    assert_eq!(PokeContext::from_value(&fits).unwrap().as_str().len(), MAX_BYTES);
    let large = json!({"x": "a".repeat(MAX_BYTES - frame + 1)});
    assert!(matches!(PokeContext::from_value(&large), Err(CanonicalError::TooLarge { .. })));
    assert!(matches!(PokeContext::from_json(&large.to_string()), Err(CanonicalError::TooLarge { .. })));
}

#[test]
fn intervals_and_timeouts_of_nothing_are_refused() {
    let (second, zero) = (Duration::from_secs(1), Duration::ZERO);
    let refused =
        |result: Result<Settings, Invalid>| assert!(matches!(result, Err(Invalid::Duration { .. })));
    refused(Settings::new(zero, second));
    refused(Settings::new(Duration::from_micros(999), second));
    refused(Settings::new(second, zero));
    let settings = Settings::new(second, second).unwrap();
    refused(settings.execution_timeout(zero));
    refused(settings.poke_timeout(zero));
    refused(settings.max_interval(second / 2));
    for text in [
        r#"{"interval_s": 0, "timeout_s": 1}"#,
        r#"{"interval_s": 1, "timeout_s": 0}"#,
        r#"{"interval_s": 1, "timeout_s": -1}"#,
        r#"{"interval_s": 1, "timeout_s": 1, "execution_timeout_s": 0}"#,
    ] {
        assert!(serde_json::from_str::<Settings>(text).is_err(), "{text}");
    }
}

#[test]
fn only_a_running_task_under_its_present_lease_registers() {
    for store in stores() {
        let queued = leases(&store, &["queued"], false)[0];
        let ended = leases(&store, &["ended"], true)[0];
        let done = Finish::new(ended, Outcome::Success { value: None });
        store.write(|tx| tx.finish(at(1), std::slice::from_ref(&done))).unwrap();
        let good = leases(&store, &["good"], true)[0];
        let old = LeaseRef::new(good.id, good.epoch - 1);
        let nobody = LeaseRef::new(stationmaster::TaskId(999), 1);

        let names = ["queued", "ended", "good"];
        let before = seen(&store, &names);
        let bad = [queued, ended, old, nobody].map(|lease| sensor(lease, "kind"));
        let answers = store.write(|tx| tx.register(at(2), &bad)).unwrap();
        use Registered::{NotRunning, Stale, Waiting};
        assert_eq!(answers, [NotRunning, Stale, Stale, Stale]);
        assert_eq!(seen(&store, &names), before);

        // Among bad ones, and twice, a good one is taken once.
        let mixed = [queued, good, old, good].map(|lease| sensor(lease, "kind"));
        let answers = store.write(|tx| tx.register(at(2), &mixed)).unwrap();
        assert!(matches!(answers[..], [NotRunning, Waiting(_), Stale, Stale]), "{answers:?}");
        // A task that senses has no lease to register with any more.
        assert_eq!(store.write(|tx| tx.register(at(3), &[sensor(good, "kind")])).unwrap(), [Stale]);
        let (tasks, sensors, change, used) = seen(&store, &names);
        let states: Vec<TaskState> = tasks.into_iter().map(|task| task.unwrap().state).collect();
        assert_eq!(states, [TaskState::Queued, TaskState::Success, TaskState::Sensing]);
        assert_eq!(sensors.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!((change, used), (before.2 + 1, before.3 - 1));
    }
}

#[test]
fn what_may_not_be_a_sensor_stays_a_running_task() {
    for store in stores() {
        let names = ["kind", "other", "callbacks"];
        let leases = leases(&store, &names, true);
        let sensors = [
            sensor(leases[0], "kind"),
            sensor(leases[1], "other"),
            sensor(leases[2], "kind").has_callbacks(true),
        ];
        let only = Some([SensorKind::new("kind").unwrap()].into());
        let config = SmartSensorConfig::default().sensors_enabled(only);
        let off = config.clone().use_smart_sensor(false);

        let before = seen(&store, &names);
        let answers = store.write(|tx| tx.register_with(at(1), &off, &sensors)).unwrap();
        assert_eq!(answers, [const { Registered::Ineligible(Ineligible::SwitchedOff) }; 3]);
        assert_eq!(seen(&store, &names), before);

        let answers = store.write(|tx| tx.register_with(at(1), &config, &sensors)).unwrap();
        assert!(matches!(answers[0], Registered::Waiting(_)), "{answers:?}");
        assert_eq!(answers[1], Registered::Ineligible(Ineligible::KindNotEnabled));
        assert_eq!(answers[2], Registered::Ineligible(Ineligible::HasCallbacks));
        assert_eq!(answers.iter().map(Registered::host_pokes).collect::<Vec<_>>(), [false, true, true]);
        let after = seen(&store, &names);
        assert_eq!((&after.0[1..], &after.1[1..]), (&before.0[1..], &before.1[1..]));
        assert_eq!(after.3, 2, "the slots of the two are kept");

        // Of two sensors of one lease the first counts, whatever the second is.
        let both = [sensor(leases[1], "other"), sensor(leases[1], "kind")];
        let answers = store.write(|tx| tx.register_with(at(1), &config, &both)).unwrap();
        assert_eq!(answers, [const { Registered::Ineligible(Ineligible::KindNotEnabled) }; 2]);
        assert_eq!(seen(&store, &names), after);

        // A lease that was lost is the more urgent news: that work is to be stopped, not poked for.
        let old = sensor(LeaseRef::new(leases[1].id, leases[1].epoch - 1), "other");
        assert_eq!(
            store.write(|tx| tx.register_with(at(1), &off, std::slice::from_ref(&old))).unwrap(),
            [Registered::Stale]
        );
        let both = [sensor(leases[1], "kind"), sensor(leases[1], "other")];
        let answers = store.write(|tx| tx.register_with(at(1), &config, &both)).unwrap();
        assert!(matches!(answers[..], [Registered::Waiting(_), Registered::Stale]), "{answers:?}");
    }
}

#[test]
fn a_task_that_was_refused_is_poked_by_its_host_to_its_end() {
    for store in stores() {
        let dir = tempfile::tempdir().unwrap();
        let lease = leases(&store, &["t"], true)[0];
        let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
        let file = dir.path().join("in.csv");
        let wanted = FileExists::at(&file).sensor(lease, settings).unwrap();
        let off = SmartSensorConfig::default().use_smart_sensor(false);
        let answers = store.write(|tx| tx.register_with(at(0), &off, std::slice::from_ref(&wanted))).unwrap();
        assert!(matches!(answers[..], [ref refused] if refused.host_pokes()), "{answers:?}");

        // By the pokes that a poker would make, the built-in ones here.
        let look =
            |now: i64| file_exists(&PokeRequest::new(wanted.kind.clone(), wanted.context.clone(), at(now)));
        assert_eq!(look(0), PokeOutcome::NotYet);
        std::fs::write(&file, "12").unwrap();
        let PokeOutcome::Landed(value) = look(10) else { panic!("it is there") };
        let done = Finish::new(lease, Outcome::Success { value });
        let finished = store.write(|tx| tx.finish(at(10), std::slice::from_ref(&done))).unwrap();
        assert_eq!(finished, [Finished::Ended(TaskState::Success)]);
        let (tasks, sensors, _, used) = seen(&store, &["t"]);
        let value = tasks[0].as_ref().unwrap().value.as_deref().unwrap();
        assert!(value.contains("in.csv") && value.contains(r#""bytes":2"#), "{value}");
        assert_eq!((&sensors[..], used), (&[None][..], 0));
    }
}

/// Fails every transaction that writes: before it begins, or after its commit, which the caller then cannot know of.
#[derive(Debug)]
struct Broken {
    inner: Arc<dyn Store>,
    committed: bool,
}

impl Store for Broken {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        if self.committed {
            self.inner.transact(mode, body)?;
            return Err(Error::Store(StoreError::new(StoreErrorKind::Indeterminate, "the answer was lost")));
        }
        Err(Error::Store(StoreError::new(StoreErrorKind::Full, "no space is left")))
    }
}

#[test]
fn a_failed_registration_is_a_value_and_the_host_goes_on() {
    for store in stores() {
        let leases = leases(&store, &["a", "b"], true);
        let sensors = [sensor(leases[0], "kind"), sensor(leases[1], "kind")];
        let config = SmartSensorConfig::default();
        let before = seen(&store, &["a", "b"]);
        let broken: &dyn Store = &Broken { inner: store.clone(), committed: false };
        let failed = broken.write(|tx| tx.register_with(at(1), &config, &sensors)).unwrap_err();
        assert_eq!(failed.to_string(), "no space is left");
        assert_eq!(seen(&store, &["a", "b"]), before);
        // The task is still the host's.
        let done = Finish::new(leases[0], Outcome::Success { value: Some("seen by the host".into()) });
        let finished = store.write(|tx| tx.finish(at(2), std::slice::from_ref(&done))).unwrap();
        assert_eq!(finished, [Finished::Ended(TaskState::Success)]);

        // Where the commit took effect unseen, the host finds its lease stale, and the sensor counts.
        let lost: &dyn Store = &Broken { inner: store.clone(), committed: true };
        assert!(lost.write(|tx| tx.register_with(at(1), &config, &sensors[1..])).is_err());
        let done = Finish::new(leases[1], Outcome::Success { value: None });
        assert_eq!(
            store.write(|tx| tx.finish(at(2), std::slice::from_ref(&done))).unwrap(),
            [Finished::Stale]
        );
        assert_eq!(seen(&store, &["b"]).0[0].as_ref().unwrap().state, TaskState::Sensing);
    }
}

#[test]
fn a_kind_that_no_worker_knows_is_counted_and_times_out() {
    for store in stores() {
        let lease = leases(&store, &["t"], true)[0];
        store.write(|tx| tx.register(at(0), &[sensor(lease, "nobody's")])).unwrap();
        let poke = |_: &PokeRequest| PokeOutcome::Landed(None);
        let mut poker = Poker::new(store.clone(), "p".try_into().unwrap())
            .wait_for_answers(Duration::from_secs(60))
            .kind("kind".try_into().unwrap(), poke);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.unknown_kind, report.poked, report.landed), (1, 0, 0));
        assert_eq!((1..=60).map(|now| poker.tick(at(now)).unwrap().timed_out).sum::<usize>(), 1);
        assert_eq!(told(&store)[0].reason, Some(EndReason::TimedOut));
    }
}

#[test]
fn an_empty_batch_changes_nothing() {
    for store in stores() {
        assert_eq!(store.write(|tx| tx.register(at(0), &[])).unwrap(), []);
        assert_eq!(
            store.write(|tx| tx.register_with(at(0), &SmartSensorConfig::default(), &[])).unwrap(),
            []
        );
        assert_eq!(store.write(|tx| tx.start(at(0), &[])).unwrap(), [] as [bool; 0]);
        assert_eq!(seen(&store, &[]).2, 0);
    }
}
