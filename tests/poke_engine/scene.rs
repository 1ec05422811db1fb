//! Sensors to be poked, and pokes that behave as a test wants them to.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::feed::TaskEvent;
use stationmaster::ops::{Cleared, Mark};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::service::{Admitter, PokeReport, Poker, Service};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::testing::FaultStore;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskState, Timestamp};

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn waits(interval: u64, timeout: u64) -> Settings {
    Settings::new(secs(interval), secs(timeout)).unwrap()
}

pub fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// A tick waits until all have answered or passed their deadlines, which are long.
pub fn patient_named(store: &Arc<dyn Store>, name: &str) -> Poker {
    let poker = Poker::new(store.clone(), name.try_into().unwrap());
    let poker = poker.shards(NonZeroU32::new(4).unwrap()).lease(secs(100_000));
    poker.wait_for_answers(secs(120)).poke_timeout(secs(120)).threads(4)
}

pub fn patient(store: &Arc<dyn Store>) -> Poker {
    patient_named(store, "p")
}

/// Tasks that wait for targets of a kind, each `(task, target)`.
pub fn sense(store: &Arc<dyn Store>, now: i64, kind: &str, tasks: &[(&str, &str)], settings: Settings) {
    sense_with(store, now, kind, tasks, settings, &RetryPolicy::none());
}

pub fn sense_with(
    store: &Arc<dyn Store>,
    now: i64,
    kind: &str,
    tasks: &[(&str, &str)],
    settings: Settings,
    retry: &RetryPolicy,
) {
    let new: Vec<NewTask> = tasks
        .iter()
        .map(|(task, _)| NewTask::new(key(task)).retry(retry.clone()).feed(Feed::EndsAndSensors))
        .collect();
    store.write(|tx| tx.enqueue(at(now), &new)).unwrap();
    register_ready(store, now, kind, tasks, settings);
}

/// Registers tasks that are ready.
pub fn register_ready(
    store: &Arc<dyn Store>,
    now: i64,
    kind: &str,
    tasks: &[(&str, &str)],
    settings: Settings,
) {
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let granted = admitter.tick(at(now)).unwrap().granted;
    assert_eq!(granted.len(), tasks.len());
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    let sensors: Vec<NewSensor> = granted
        .iter()
        .map(|task| {
            let (_, target) = tasks.iter().find(|(name, _)| *name == task.key.task.as_str()).unwrap();
            let context = PokeContext::from_json(&format!(r#"{{"target":"{target}"}}"#)).unwrap();
            NewSensor::new(task.lease_ref(), kind.try_into().unwrap(), context, settings)
        })
        .collect();
    store
        .write(|tx| {
            tx.start(at(now), &leases)?;
            tx.register(at(now), &sensors)
        })
        .unwrap();
}

/// Takes a task from its sensor.
pub fn leave(store: &Arc<dyn Store>, now: i64, task: &str) {
    store.write(|tx| tx.mark(at(now), &[Mark::new(key(task), TaskState::Skipped, "by hand")])).unwrap();
}

/// Takes a task from its sensor, and has it wait for the target again.
pub fn register_again(store: &Arc<dyn Store>, now: i64, task: (&str, &str), settings: Settings) {
    leave(store, now, task.0);
    let cleared = store.write(|tx| tx.clear(at(now), &[key(task.0)])).unwrap();
    assert_eq!(cleared, [Cleared::Ready]);
    register_ready(store, now, "kind", &[task], settings);
}

pub fn state(store: &Arc<dyn Store>, task: &str) -> TaskState {
    store.read(|tx| tx.tasks(&[key(task)])).unwrap().remove(0).unwrap().state
}

/// How sensors ended.
pub fn events(store: &Arc<dyn Store>) -> Vec<TaskEvent> {
    crate::stores::told(store).into_iter().filter(|event| event.reason.is_some()).collect()
}

/// Ticks at one instant until the reports say so.
pub fn tick_until(poker: &mut Poker, now: i64, mut done: impl FnMut(&PokeReport) -> bool) {
    let began = Instant::now();
    while !done(&poker.tick(at(now)).unwrap()) {
        assert!(began.elapsed() < secs(60), "it never comes");
        std::thread::sleep(millis(2));
    }
}

/// Holds up those that pass, until it is opened.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn pass(&self) {
        let mut open = self.open.lock();
        self.opened.wait_while(&mut open, |open| !*open);
    }

    pub fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

/// A store over this one, and what makes it fail transactions that write.
pub fn refusing(store: &Arc<dyn Store>) -> (Arc<dyn Store>, Arc<FaultStore>) {
    let faults = Arc::new(FaultStore::new(store.clone()));
    (faults.clone(), faults)
}
