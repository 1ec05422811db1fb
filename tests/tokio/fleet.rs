//! Many sensors, and async pokes that can be watched.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{Admitter, PokeRequest, Poker};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::tokio::AsyncService;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskState};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::scene::*;

/// One thread for all tasks.
pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub fn places(calls: usize) -> NonZeroUsize {
    NonZeroUsize::new(calls).unwrap()
}

/// This many tasks that wait for targets of a kind, each for one of its own: `<kind>-<n>`.
pub fn sense_targets(store: &Arc<dyn Store>, kind: &str, targets: usize, settings: Settings) -> Vec<TaskKey> {
    let keys: Vec<TaskKey> = (0..targets).map(|n| key(&format!("{kind}-{n}"))).collect();
    let tasks: Vec<NewTask> =
        keys.iter().cloned().map(|key| NewTask::new(key).feed(Feed::EndsAndSensors)).collect();
    let slots = PoolSpec::new("default_pool", Slots::Unlimited).unwrap();
    store
        .write(|tx| {
            tx.define([&slots], IfExists::Replace)?;
            tx.enqueue(at(0), &tasks)
        })
        .unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).budget(targets);
    let granted = admitter.admit(at(0), targets).unwrap().granted;
    assert_eq!(granted.len(), targets);
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    let sensor = |task: &stationmaster::TaskRecord| {
        let context = PokeContext::from_json(&format!(r#"{{"target":"{}"}}"#, task.key.task)).unwrap();
        NewSensor::new(task.lease_ref(), kind.try_into().unwrap(), context, settings)
    };
    let sensors: Vec<NewSensor> = granted.iter().map(sensor).collect();
    store
        .write(|tx| {
            tx.start(at(0), &leases)?;
            tx.register(at(0), &sensors)
        })
        .unwrap();
    keys
}

/// How many of these tasks are in this state.
pub fn in_state(store: &Arc<dyn Store>, keys: &[TaskKey], state: TaskState) -> usize {
    let tasks = store.read(|tx| tx.tasks(keys)).unwrap();
    tasks.iter().flatten().filter(|task| task.state == state).count()
}

/// A poker whose kind `kind` is answered by these futures.
pub fn poker_of<F>(
    poker: Poker,
    poke: impl Fn(PokeRequest) -> F + Send + Sync + 'static,
) -> AsyncService<Poker>
where
    F: Future<Output = PokeOutcome> + Send + 'static,
{
    AsyncService::new(poker.kind_async("kind".try_into().unwrap(), &Handle::current(), poke))
}

/// Counts what is in flight.
#[derive(Debug, Clone, Default)]
pub struct Flights(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Flights {
    /// One is in flight as long as this is kept.
    pub fn begin(&self) -> InFlight {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let now = self.0.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(now, Ordering::SeqCst);
        InFlight(self.clone())
    }

    pub fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }

    pub fn now(&self) -> usize {
        self.0.now.load(Ordering::SeqCst)
    }

    pub fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub struct InFlight(Flights);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets other tasks run until this holds.
pub async fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < secs(60), "it never comes");
        tokio::time::sleep(millis(1)).await;
    }
}
