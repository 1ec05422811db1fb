//! The delivery of sensor events: at least once, in order per task, whatever callbacks and the store do.

mod stores;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::error::{Result, StoreError, StoreErrorKind};
use stationmaster::ops::Registered;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{EndReason, NewSensor, SensorEvent, SensorRecord, Settings};
use stationmaster::service::{Admitter, Callbacks, Delivery, DeliveryReport, Service};
use stationmaster::store::contract::{Ending, EventNote};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::stores;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// This many sensors that wait, in the order of their tasks.
fn sense(store: &Arc<dyn Store>, count: usize) -> Vec<SensorRecord> {
    let key = |n: usize| TaskKey::new("ns", "w", "r", format!("t{n:05}")).unwrap();
    let tasks: Vec<NewTask> =
        (0..count).map(|n| NewTask::new(key(n)).pool("wide".try_into().unwrap())).collect();
    store
        .write(|tx| {
            tx.define([PoolSpec::new("wide", Slots::Unlimited)?], IfExists::Replace)?;
            tx.enqueue(at(0), &tasks)
        })
        .unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let mut granted = Vec::new();
    while granted.len() < count {
        let more = admitter.tick(at(0)).unwrap().granted;
        assert!(!more.is_empty());
        granted.extend(more.iter().map(TaskRecord::lease_ref));
    }
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(1_000)).unwrap();
    let context = PokeContext::from_json("{}").unwrap();
    let sensors: Vec<NewSensor> = granted
        .iter()
        .map(|lease| NewSensor::new(*lease, "kind".try_into().unwrap(), context.clone(), settings))
        .collect();
    let registered = store
        .write(|tx| {
            tx.start(at(0), &granted)?;
            tx.register(at(0), &sensors)
        })
        .unwrap();
    let waiting = |answer| match answer {
        Registered::Waiting(sensor) => *sensor,
        other => panic!("{other:?}"),
    };
    let mut sensors: Vec<SensorRecord> = registered.into_iter().map(waiting).collect();
    sensors.sort_by(|a, b| a.task.cmp(&b.task));
    sensors
}

/// Notes an event of each of these sensors, in this order, with its place as the value.
fn note(store: &Arc<dyn Store>, sensors: &[&SensorRecord]) {
    let landed =
        |place: usize| Ending::new(EndReason::Landed, TaskState::Success).value(Some(place.to_string()));
    let notes: Vec<EventNote> = (0..)
        .zip(sensors)
        .map(|(place, sensor)| EventNote::new((*sensor).clone(), at(1), landed(place)))
        .collect();
    store.write(|tx| Ok(raw(tx).note_events(&notes)?)).unwrap();
}

fn left(store: &Arc<dyn Store>) -> usize {
    store.read(|tx| tx.events(0, 1_000_000)).unwrap().len()
}

/// The places that a callback took, by task.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<BTreeMap<String, Vec<usize>>>>);

impl Taken {
    fn take(&self, event: &SensorEvent) {
        let place = event.ending.value.as_ref().unwrap().parse().unwrap();
        self.0.lock().unwrap().entry(event.task.task.as_str().to_owned()).or_default().push(place);
    }

    fn of(&self, task: usize) -> Vec<usize> {
        self.0.lock().unwrap().get(&format!("t{task:05}")).cloned().unwrap_or_default()
    }
}

#[test]
fn a_callback_that_fails_or_panics_holds_up_its_own_task_only() {
    for limit in [1, 2, 3, 100] {
        for store in stores() {
            let s = sense(&store, 3);
            note(&store, &[&s[0], &s[1], &s[2], &s[0], &s[1], &s[2], &s[0], &s[1], &s[2]]);
            let (taken, healed) = (Taken::default(), Arc::new(AtomicBool::new(false)));
            let (into, well) = (taken.clone(), healed.clone());
            let mut delivery = Delivery::new(store.clone(), limit, move |event: &SensorEvent| {
                if !well.load(Ordering::SeqCst) {
                    match event.task.task.as_str() {
                        "t00000" => return Err("on purpose".into()),
                        "t00001" => panic!("on purpose"),
                        _ => {}
                    }
                }
                into.take(event);
                Ok(())
            });
            let mut seen = DeliveryReport::default();
            for _ in 0..20 {
                let report = delivery.tick(at(2)).unwrap();
                seen.delivered += report.delivered;
                seen.failed.extend(report.failed);
                assert!(report.next_due.unwrap() <= at(3), "there is more to do");
            }
            assert_eq!((seen.delivered, left(&store)), (3, 6), "limit {limit}");
            assert_eq!((taken.of(0), taken.of(1), taken.of(2)), (vec![], vec![], vec![2, 5, 8]));
            // Only the first event of each was tried, again and again.
            assert!(
                seen.failed.iter().all(|(event, _)| event.seq == first_failed(&seen, event)),
                "limit {limit}"
            );
            let said = |part: &str| seen.failed.iter().any(|(_, why)| why == part);
            assert!(said("on purpose") && said("the callback panicked: on purpose"));

            healed.store(true, Ordering::SeqCst);
            for _ in 0..20 {
                delivery.tick(at(3)).unwrap();
            }
            assert_eq!(
                (taken.of(0), taken.of(1), left(&store)),
                (vec![0, 3, 6], vec![1, 4, 7], 0),
                "limit {limit}"
            );
            let idle = delivery.tick(at(4)).unwrap();
            assert_eq!((idle.delivered, idle.failed.len(), idle.waiting), (0, 0, 0));
            assert_eq!(idle.next_due, Some(at(5)), "to look for new events");
            let mut rarely = delivery.refresh_every(Duration::from_secs(60));
            assert_eq!(rarely.tick(at(5)).unwrap().next_due, Some(at(65)));
        }
    }
}

/// The first event of the same task that failed.
fn first_failed(seen: &DeliveryReport, event: &SensorEvent) -> u64 {
    seen.failed
        .iter()
        .filter(|(other, _)| other.task == event.task)
        .map(|(other, _)| other.seq)
        .min()
        .unwrap()
}

#[test]
fn many_events_that_are_never_taken_do_not_keep_it_from_the_others() {
    for store in stores() {
        let sensors = sense(&store, 50);
        note(&store, &sensors.iter().collect::<Vec<_>>());
        let taken = Taken::default();
        let into = taken.clone();
        let mut delivery = Delivery::new(store.clone(), 3, move |event: &SensorEvent| {
            if event.task.task.as_str() != "t00049" {
                return Err("never".into());
            }
            into.take(event);
            Ok(())
        });
        for _ in 0..50_usize.div_ceil(3) {
            delivery.tick(at(2)).unwrap();
        }
        assert_eq!((taken.of(49), left(&store)), (vec![49], 49));
    }
}

#[test]
fn what_is_never_taken_is_read_again_less_and_less_often_and_holds_up_no_new_event() {
    for store in stores() {
        let s = sense(&store, 3);
        note(&store, &[&s[0]; 50]);
        let (taken, healed, tries) =
            (Taken::default(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (into, well, counted) = (taken.clone(), healed.clone(), tries.clone());
        let mut delivery = Delivery::new(store.clone(), 1_000, move |event: &SensorEvent| {
            if event.task.task.as_str() == "t00000" && !well.load(Ordering::SeqCst) {
                counted.fetch_add(1, Ordering::SeqCst);
                return Err("never".into());
            }
            into.take(event);
            Ok(())
        });
        let mut read = 0;
        for now in 1..=600 {
            let report = delivery.tick(at(now)).unwrap();
            read += report.waiting;
            assert!(report.next_due.unwrap() <= at(now + 1), "it looks for new events");
            if now == 300 {
                note(&store, &[&s[1], &s[2]]);
            }
        }
        assert_eq!((taken.of(1), taken.of(2)), (vec![0], vec![1]));
        // At 1, 2, 4, 8, 16, 32, 64, 124, 184, … 544.
        assert_eq!((tries.load(Ordering::SeqCst), read), (15, 15 * 49));

        // Within a minute all of it is taken.
        healed.store(true, Ordering::SeqCst);
        let mut delivered = 0;
        for now in 601..=660 {
            delivered += delivery.tick(at(now)).unwrap().delivered;
        }
        assert_eq!((delivered, left(&store)), (50, 0));
    }
}

#[test]
fn an_event_that_failed_for_the_first_time_is_tried_again_after_a_second() {
    for store in stores() {
        let s = sense(&store, 2);
        note(&store, &[&s[0]]);
        let (taken, fails) = (Taken::default(), Arc::new(AtomicUsize::new(1)));
        let (into, left_to_fail) = (taken.clone(), fails.clone());
        let mut delivery = Delivery::new(store.clone(), 1_000, move |event: &SensorEvent| {
            let again = |left: usize| left.checked_sub(1);
            let first_time = || left_to_fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, again).is_ok();
            if event.task.task.as_str() == "t00000" || first_time() {
                return Err("not now".into());
            }
            into.take(event);
            Ok(())
        });
        for now in 1..=200 {
            delivery.tick(at(now)).unwrap();
        }
        note(&store, &[&s[1]]);
        assert_eq!(delivery.tick(at(201)).unwrap().failed.len(), 1);
        assert_eq!((delivery.tick(at(202)).unwrap().delivered, taken.of(1)), (1, vec![0]));
    }
}

#[test]
fn a_tick_holds_no_more_than_some_of_the_events_when_they_are_long() {
    const EVENTS: usize = 100;
    for store in stores() {
        let sensors = sense(&store, EVENTS);
        let long = Ending::new(EndReason::Landed, TaskState::Success).value(Some("x".repeat(1 << 20)));
        let notes: Vec<EventNote> =
            sensors.iter().map(|sensor| EventNote::new(sensor.clone(), at(1), long.clone())).collect();
        store.write(|tx| Ok(raw(tx).note_events(&notes)?)).unwrap();
        drop(notes);
        let delivers = Arc::new(AtomicBool::new(false));
        let takes = delivers.clone();
        let mut delivery =
            Delivery::new(store.clone(), 1_000, move |_: &SensorEvent| match takes.load(Ordering::SeqCst) {
                true => Ok(()),
                false => Err("never".into()),
            });
        let mut tick = |now| {
            let mut report = None;
            let used = allocation_counter::measure(|| report = Some(delivery.tick(at(now)).unwrap()));
            assert!(used.bytes_max < 140 << 20, "{} bytes were held", used.bytes_max);
            report.unwrap()
        };
        let report = tick(2);
        assert!(
            (65..=96).contains(&report.failed.len()) && report.next_due == Some(at(2)),
            "{}",
            report.failed.len()
        );
        delivers.store(true, Ordering::SeqCst);
        let delivered: usize = (2..10).map(|now| tick(now).delivered).sum();
        assert_eq!((delivered, left(&store)), (EVENTS, 0));
    }
}

/// Fails transactions that write while it is told to, and counts those that do not fail.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Store>,
    broken: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
}

impl Store for Faulty {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        if mode == TxMode::Write {
            if self.broken.load(Ordering::SeqCst) {
                return Err(Error::Store(StoreError::new(StoreErrorKind::Io, "on purpose")));
            }
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.transact(mode, body)
    }
}

#[test]
fn an_acknowledgement_that_fails_delivers_again() {
    for store in stores() {
        let s = sense(&store, 2);
        note(&store, &[&s[0], &s[1], &s[0]]);
        let broken = Arc::new(AtomicBool::new(true));
        let faulty = Faulty { inner: store.clone(), broken: broken.clone(), writes: Arc::default() };
        let taken = Taken::default();
        let into = taken.clone();
        let mut delivery = Delivery::new(Arc::new(faulty), 100, move |event: &SensorEvent| {
            into.take(event);
            Ok(())
        });
        assert!(delivery.tick(at(2)).is_err());
        assert_eq!(left(&store), 3);
        broken.store(false, Ordering::SeqCst);
        assert_eq!(delivery.tick(at(3)).unwrap().delivered, 3);
        assert_eq!((taken.of(0), taken.of(1), left(&store)), (vec![0, 2, 0, 2], vec![1, 1], 0));
    }
}

/// The environment variable that makes this test program the process that dies.
#[cfg(feature = "sqlite")]
const DIES_WITH: &str = "STATIONMASTER_TEST_EVENTS_DB";

#[test]
#[cfg(feature = "sqlite")]
fn a_process_that_dies_between_callback_and_acknowledgement_delivers_again() {
    use stationmaster::store::SqliteStore;
    use stationmaster::store::sqlite::SqliteOptions;
    if let Ok(file) = std::env::var(DIES_WITH) {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(file, SqliteOptions::default()).unwrap());
        let mut delivery = Delivery::new(store, 100, |event: &SensorEvent| {
            if event.ending.value.as_deref() == Some("2") {
                std::process::exit(42);
            }
            Ok(())
        });
        delivery.tick(at(2)).unwrap();
        unreachable!("it died");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file, SqliteOptions::default()).unwrap());
    let s = sense(&store, 2);
    note(&store, &[&s[0], &s[1], &s[0], &s[1]]);
    let name = "a_process_that_dies_between_callback_and_acknowledgement_delivers_again";
    let died = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(DIES_WITH, &file)
        .output()
        .unwrap();
    assert_eq!(died.status.code(), Some(42), "{died:?}");
    assert_eq!(left(&store), 4);
    let taken = Taken::default();
    let into = taken.clone();
    let mut delivery = Delivery::new(store.clone(), 100, move |event: &SensorEvent| {
        into.take(event);
        Ok(())
    });
    assert_eq!(delivery.tick(at(3)).unwrap().delivered, 4);
    assert_eq!((taken.of(0), taken.of(1), left(&store)), (vec![0, 2], vec![1, 3], 0));
}

#[test]
fn five_thousand_landings_are_delivered_and_acknowledged_in_bulk() {
    for store in stores() {
        let sensors = sense(&store, 5_000);
        let landed = Ending::new(EndReason::Landed, TaskState::Success).value(Some("7".into()));
        let ends: Vec<(LeaseRef, Ending)> =
            sensors.iter().map(|sensor| (sensor.lease_ref(), landed.clone())).collect();
        let moved = store.write(|tx| tx.end_sensors(at(1), &ends)).unwrap();
        assert!(moved.iter().all(|moved| *moved));
        assert_eq!(left(&store), 5_000);

        let writes = Arc::new(AtomicUsize::new(0));
        let counting = Faulty { inner: store.clone(), broken: Arc::default(), writes: writes.clone() };
        let taken = Taken::default();
        let into = taken.clone();
        let mut callbacks = Callbacks::new().on_landed(move |event: &SensorEvent| {
            into.take(event);
            Ok(())
        });
        let mut delivery =
            Delivery::new(Arc::new(counting), 2_000, move |event: &SensorEvent| callbacks.call(event));
        let delivered: Vec<usize> = (0..4).map(|_| delivery.tick(at(2)).unwrap().delivered).collect();
        assert_eq!(delivered, [2_000, 2_000, 1_000, 0]);
        assert_eq!((writes.load(Ordering::SeqCst), left(&store)), (3, 0));
        assert!((0..5_000).all(|task| taken.of(task) == [7]));
    }
}

#[test]
fn each_event_has_its_callback() {
    use EndReason::{Cancelled, ExecutionTimedOut, Failed, Landed, TimedOut, Unreachable};
    use TaskState::{Scheduled, Skipped, Success, UpForRetry};
    for store in stores() {
        let sensor = sense(&store, 1).remove(0);
        let called = |with_timeout: bool, reason: EndReason, to: TaskState| {
            let names: Arc<Mutex<Vec<&'static str>>> = Arc::default();
            let call = |name: &'static str| {
                let names = names.clone();
                move |_: &SensorEvent| {
                    names.lock().unwrap().push(name);
                    Ok(())
                }
            };
            let mut all = Callbacks::new()
                .on_landed(call("landed"))
                .on_failed(call("failed"))
                .on_skipped(call("skipped"))
                .on_retry(call("retry"))
                .on_cancelled(call("cancelled"));
            if with_timeout {
                all = all.on_timed_out(call("timed out"));
            }
            let event = SensorEvent::new(1, &sensor, at(1), Ending::new(reason, to));
            all.call(&event).unwrap();
            assert!(Callbacks::new().call(&event).is_ok(), "without a callback it is taken");
            names.lock().unwrap().join("+")
        };
        for (reason, to, name) in [
            (Landed, Success, "landed"),
            (Landed, Scheduled, "landed"),
            (TimedOut, TaskState::Failed, "timed out"),
            (TimedOut, Skipped, "skipped"),
            (ExecutionTimedOut, TaskState::Failed, "timed out"),
            (ExecutionTimedOut, UpForRetry, "retry"),
            (Failed, TaskState::Failed, "failed"),
            (Failed, Skipped, "skipped"),
            (Unreachable, UpForRetry, "retry"),
            (Unreachable, TaskState::Failed, "failed"),
            (Cancelled, Success, "cancelled"),
            (Cancelled, Skipped, "cancelled"),
        ] {
            assert_eq!(called(true, reason, to), name, "{reason:?} {to}");
        }
        assert_eq!(called(false, TimedOut, TaskState::Failed), "failed");
    }
}
