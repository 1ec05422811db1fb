//! Every metric, by name: that it is well made, and that something tells it.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::canonical::PokeContext;
use stationmaster::error::{Result, StoreError, StoreErrorKind};
use stationmaster::ops::{Finish, Mark, StopBeforeStart};
use stationmaster::run::{RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{NewSensor, PokeOutcome, SensorRecord, Settings};
use stationmaster::service::metrics::{self, Metric, finished, registered};
use stationmaster::service::{
    Admitter, FeedReader, ObservedStore, Observer, PokeLog, PokeRequest, Poker, Service, Upkeep,
};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::task::Feed;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::FaultStore;
use stationmaster::{Error, LeaseRef, NewTask, TaskKey, TaskState, Timestamp};

use crate::recorder::{Recorder, Told};
use crate::stores::{Kind, Made, kinds, stores};
use crate::world::without_effect;

#[test]
fn names_follow_the_conventions() {
    let names: BTreeSet<&str> = metrics::ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), metrics::ALL.len(), "each name once");
    for Metric { name, kind, help, labels, buckets, .. } in metrics::ALL {
        let words = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(words && name.starts_with("stationmaster_"), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        assert_eq!(name.ends_with("_seconds"), *kind == "histogram", "{name}");
        assert_eq!(!buckets.is_empty(), *kind == "histogram", "{name}");
        assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
        assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
        assert!(labels.iter().all(|label| !["le", "quantile"].contains(label)), "{name}");
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// Enqueues tasks and starts them.
fn running(store: &Arc<dyn Store>, admitter: &mut Admitter, now: u64, tasks: &[&str]) -> Vec<LeaseRef> {
    let tasks: Vec<NewTask> =
        tasks.iter().map(|task| NewTask::new(key(task)).feed(Feed::EndsAndSensors)).collect();
    store.write(|tx| tx.enqueue(at(now), &tasks)).unwrap();
    let granted = admitter.tick(at(now)).unwrap().granted;
    assert_eq!(granted.len(), tasks.len());
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    store.write(|tx| tx.start(at(now), &leases)).unwrap();
    leases
}

struct BadLog;

impl PokeLog for BadLog {
    fn poked(&self, _: &SensorRecord, _: Timestamp, _: &PokeOutcome) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

#[derive(Debug)]
struct Contended(Made, AtomicBool);

impl Store for Contended {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let fail = mode == TxMode::Write && self.1.swap(false, Ordering::SeqCst);
        let conflict = || Error::from(StoreError::new(StoreErrorKind::Conflict, "on purpose"));
        if fail {
            without_effect(&self.0, body);
            return Err(conflict());
        }
        self.0.transact(mode, body)
    }
}

/// A short life of a host in which everything happens that is counted.
fn everything(kind: &Kind) -> Told {
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn Observer> = recorder.clone();
    let contended = Contended(kind.make(), AtomicBool::new(false));
    let store: Arc<dyn Store> = Arc::new(ObservedStore::new(contended, observer.clone()));
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap())
        .lease(Duration::from_secs(10))
        .observed_by(observer.clone());
    let mut upkeep = Upkeep::new(store.clone())
        .grace(Duration::ZERO)
        .retain_ended_for(Duration::from_secs(60))
        .observed_by(observer.clone());

    // A task that comes due, whose lease is lost, and which is forgotten; a finish and a renewal that come too late.
    let late = NewTask::new(key("lost")).not_before(at(5)).lease_loss(LeaseLoss::Fail);
    store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&late))).unwrap();
    let lost = admitter.tick(at(5)).unwrap().granted[0].lease_ref();
    upkeep.tick(at(15)).unwrap();
    store.write(|tx| tx.renew(at(16), Duration::from_secs(1), &[lost])).unwrap();
    let answers = store.write(|tx| tx.finish(at(16), &[Finish::success(lost)])).unwrap();
    finished(&*observer, &answers);
    assert_eq!(upkeep.tick(at(100)).unwrap().forgotten, 1);

    // A lease that is renewed, and then lost to its keeper, because its holder ended it.
    let mut keeper = admitter.keeper();
    store.write(|tx| tx.enqueue(at(100), &[NewTask::new(key("kept"))])).unwrap();
    let task = admitter.tick(at(100)).unwrap().granted.remove(0);
    let _kept = keeper.keep(&task);
    let limit = LimitSpec::new("k".try_into().unwrap(), 9).unwrap();
    store.write(|tx| tx.define([&limit], IfExists::Leave)).unwrap();
    store.read(|tx| metrics::capacity(tx, at(100), &*observer)).unwrap();
    assert_eq!(keeper.tick(at(105)).unwrap().renewed, 1);
    store.write(|tx| tx.finish(at(106), &[Finish::success(task.lease_ref())])).unwrap();
    assert_eq!(keeper.tick(at(110)).unwrap().lost, [task.lease_ref()]);

    // Sensors: two that hang, one of a kind that no poker knows.
    let leases = running(&store, &mut admitter, 100, &["a", "b", "c", "d", "e"]);
    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(900)).unwrap();
    let short = settings.poke_timeout(Duration::from_millis(20)).unwrap();
    let sensor = |lease: usize, kind: &str, target: &str| {
        let settings = if kind == "stuck" { short } else { settings };
        let context = PokeContext::from_json(&format!(r#"{{"target":"{target}"}}"#)).unwrap();
        NewSensor::new(leases[lease], kind.try_into().unwrap(), context, settings)
    };
    let sensors = [
        sensor(0, "stuck", "1"),
        sensor(1, "stuck", "2"),
        sensor(2, "strange", "1"),
        sensor(3, "good", "1"),
        sensor(4, "good", "1"),
    ];
    let answers = store.write(|tx| tx.register(at(100), &sensors)).unwrap();
    registered(&*observer, &answers);
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let held = gate.clone();
    let stuck = move |_: &PokeRequest| {
        held.1.wait_while(&mut held.0.lock(), |open| !*open);
        PokeOutcome::NotYet
    };
    let good = |_: &PokeRequest| PokeOutcome::Landed(None);
    let mut poker = Poker::new(store.clone(), "p".try_into().unwrap())
        .wait_for_answers(Duration::from_secs(60))
        .max_hung(1)
        .kind("stuck".try_into().unwrap(), stuck)
        .kind("good".try_into().unwrap(), good)
        .at_once("stuck".try_into().unwrap(), NonZeroUsize::MIN)
        .log(BadLog)
        .observed_by(observer.clone());
    poker.tick(at(100)).unwrap();
    let began = Instant::now();
    let mut now = 101;
    while recorder.told().sum("stationmaster_pokes_held_back_total") == 0 {
        poker.tick(at(now)).unwrap();
        now += 1;
        std::thread::sleep(Duration::from_millis(2));
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    *gate.0.lock() = true;
    gate.1.notify_all();
    while recorder.told().sum("stationmaster_pokes_late_total") == 0 {
        poker.tick(at(now)).unwrap();
        now += 1;
        std::thread::sleep(Duration::from_millis(2));
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    // An event, a consumer that goes away, and an admission that another writer disturbs.
    store.write(|tx| tx.mark(at(now), &[Mark::new(key("c"), TaskState::Failed, "by hand")])).unwrap();
    let reader = FeedReader::new(store.clone(), "c".try_into().unwrap(), |_| Ok(()));
    assert!(reader.observed_by(observer.clone()).tick(at(now)).unwrap().accepted > 0);
    let upkeep = Upkeep::new(store.clone()).drop_consumers_after(Duration::from_secs(1));
    assert!(upkeep.observed_by(observer.clone()).tick(at(now + 2)).unwrap().feed_forgotten > 0);

    // A run that fell silent, and is forgotten with what ticks granted; and an audit.
    let run = RunRecord::open(RunKey::new("ns", "silent").unwrap(), at(0)).heartbeat(at(0));
    store.write(|tx| tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)).unwrap();
    let mut upkeep = Upkeep::new(store.clone())
        .grace(Duration::ZERO)
        .close_runs_silent_for(Duration::from_secs(1), RunStatus::Killed)
        .retain_runs_for(Duration::ZERO)
        .retain_requests_for(Duration::ZERO)
        .audit_every(Duration::from_secs(1))
        .observed_by(observer.clone());
    for later in [1, 2] {
        assert!(upkeep.tick(at(now + later)).unwrap().errors.is_empty());
    }
    let disturbed = Contended(kind.make(), AtomicBool::new(true));
    let name = "h".try_into().unwrap();
    Admitter::new(Arc::new(disturbed), name).observed_by(observer).tick(at(now)).unwrap();
    drop(poker);
    recorder.told()
}

#[test]
fn every_metric_is_reported_by_something() {
    for kind in &kinds() {
        let told = everything(kind);
        let names: BTreeSet<&str> = told.names().into_iter().collect();
        let all: BTreeSet<&str> = metrics::ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names, all);
        assert!(told.counter(r#"stationmaster_pokes_total{kind="stuck",outcome="overran"}"#) >= 1);
        assert_eq!(told.counter(r#"stationmaster_pokes_total{kind="good",outcome="landed"}"#), 1);
        assert_eq!(told.counter(r#"stationmaster_pokes_saved_total{kind="good"}"#), 1);
        assert_eq!(told.counter(r#"stationmaster_sensors_ended_total{reason="landed"}"#), 2);
        assert_eq!(told.counter(r#"stationmaster_finished_total{became="stale"}"#), 1);
        assert_eq!(told.counter(r#"stationmaster_stale_calls_total{call="renew"}"#), 2);
        assert_eq!(told.counter("stationmaster_admission_conflicts_total{}"), 1);
        assert_eq!(told.counter("stationmaster_leases_renewed_total{}"), 1);
        assert_eq!(told.counter(r#"stationmaster_leases_lost_total{how="lost"}"#), 1);
        assert_eq!(told.counter("stationmaster_silent_runs_total{}"), 1);
        assert_eq!(told.counter("stationmaster_runs_forgotten_total{}"), 1);
        let overran = told.samples(r#"stationmaster_poke_duration_seconds{kind="stuck"}"#);
        assert!(overran.contains(&0.02), "the deadline: {overran:?}");
    }
}

/// The pokes of a tick whose ends the store refuses are counted by that tick, and the ends by the tick that stores them.
#[test]
fn a_tick_that_fails_tells_what_it_did() {
    for inner in stores() {
        let recorder = Arc::new(Recorder::default());
        let mut admitter = Admitter::new(inner.clone(), "h".try_into().unwrap());
        let lease = running(&inner, &mut admitter, 0, &["a"])[0];
        let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(900)).unwrap();
        let context = PokeContext::from_json("{}").unwrap();
        let sensor = NewSensor::new(lease, "good".try_into().unwrap(), context, settings);
        inner.write(|tx| tx.register(at(0), std::slice::from_ref(&sensor))).unwrap();

        let store = Arc::new(FaultStore::new(inner));
        let refusing = store.clone();
        let poke = move |_: &PokeRequest| {
            refusing.refuse(TxMode::Write, 1);
            PokeOutcome::Landed(None)
        };
        let poker =
            Poker::new(store.clone(), "p".try_into().unwrap()).wait_for_answers(Duration::from_secs(60));
        let mut poker = poker.kind("good".try_into().unwrap(), poke).observed_by(recorder.clone());
        poker.tick(at(0)).unwrap_err();
        let failed = recorder.told();
        assert_eq!(failed.counter(r#"stationmaster_ticks_total{service="poker",result="io"}"#), 1);
        assert_eq!(failed.counter(r#"stationmaster_pokes_total{kind="good",outcome="landed"}"#), 1);
        assert_eq!(failed.sum("stationmaster_sensors_ended_total"), 0);
        assert_eq!(store.refusals_left(), 0);
        poker.tick(at(0)).unwrap();
        assert_eq!(recorder.told().counter(r#"stationmaster_sensors_ended_total{reason="landed"}"#), 1);
        assert_eq!(recorder.told().sum("stationmaster_pokes_total"), 1, "not twice");
    }
}

/// A panic costs the one number.
#[test]
fn what_comes_after_a_panic_is_reported() {
    struct Half(Recorder);
    impl Observer for Half {
        fn counter(&self, _: &'static Metric, _: &[(&'static str, &str)], _: u64) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        fn histogram(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
            self.0.histogram(metric, labels, value);
        }
    }
    for kind in kinds() {
        let half = Arc::new(Half(Recorder::default()));
        let store = ObservedStore::new(kind.make(), half.clone());
        store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key("a"))])).unwrap();
        let mut admitter = Admitter::new(Arc::new(store), "h".try_into().unwrap()).observed_by(half.clone());
        admitter.tick(at(7)).unwrap();
        let told = half.0.told();
        assert_eq!(told.samples("stationmaster_wait_seconds{}"), [7.0]);
        assert_eq!(told.samples(r#"stationmaster_tick_duration_seconds{service="admitter"}"#).len(), 1);
        assert_eq!(told.samples(r#"stationmaster_transaction_duration_seconds{mode="write"}"#).len(), 2);
    }
}

/// Two targets that a runtime looks at: one answers, one is dropped at its deadline.
#[cfg(feature = "tokio")]
#[test]
fn async_pokes_are_counted_and_measured() {
    use stationmaster::service::PokeRequest;

    for store in stores() {
        let recorder = Arc::new(Recorder::default());
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
        let leases = running(&store, &mut admitter, 0, &["a", "b", "c"]);
        let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(900)).unwrap();
        let short = settings.poke_timeout(Duration::from_millis(40)).unwrap();
        let sensors: Vec<NewSensor> = leases
            .iter()
            .zip(["good", "good", "never"])
            .map(|(lease, target)| {
                let settings = if target == "never" { short } else { settings };
                let context = PokeContext::from_json(&format!(r#"{{"target":"{target}"}}"#)).unwrap();
                NewSensor::new(*lease, "http".try_into().unwrap(), context, settings)
            })
            .collect();
        store.write(|tx| tx.register(at(0), &sensors)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let poke = |request: PokeRequest| async move {
            if request.context.as_str().contains("never") {
                std::future::pending::<()>().await;
            }
            PokeOutcome::Landed(None)
        };
        Poker::new(store, "p".try_into().unwrap())
            .wait_for_answers(Duration::from_secs(60))
            .kind_async("http".try_into().unwrap(), runtime.handle(), poke)
            .observed_by(recorder.clone())
            .tick(at(0))
            .unwrap();
        let told = recorder.told();
        assert_eq!(told.counter(r#"stationmaster_pokes_total{kind="http",outcome="landed"}"#), 1);
        assert_eq!(told.counter(r#"stationmaster_pokes_total{kind="http",outcome="overran"}"#), 1);
        assert_eq!(told.counter(r#"stationmaster_pokes_saved_total{kind="http"}"#), 1);
        let took = told.samples(r#"stationmaster_poke_duration_seconds{kind="http"}"#);
        assert_eq!((took.len(), took.contains(&0.04)), (2, true), "{took:?}");
    }
}
