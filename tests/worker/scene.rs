//! Stores, tasks and workers for the tests.

use std::sync::Arc;
use std::time::Duration;

use crate::stores::stores;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::{LoopHandle, WakingStore, Worker, WorkerReport};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState};

pub const HOUR: Duration = Duration::from_secs(3_600);
pub const MINUTE: Duration = Duration::from_secs(60);

pub fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

pub fn task(name: &str) -> NewTask {
    NewTask::new(key(name))
}

pub fn enqueue(store: &Arc<dyn Store>, tasks: &[NewTask]) {
    store.write(|tx| tx.enqueue(SystemClock.now(), tasks)).unwrap();
}

pub fn record(store: &Arc<dyn Store>, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

pub fn state(store: &Arc<dyn Store>, name: &str) -> TaskState {
    record(store, name).state
}

pub fn worker(store: &Arc<dyn Store>) -> Worker {
    Worker::new(store.clone(), "worker".try_into().unwrap()).places(4).longest_wait(HOUR)
}

/// A store of each kind, and a handle that its commits wake.
pub fn scenes() -> impl Iterator<Item = (Arc<dyn Store>, LoopHandle)> {
    stores().map(|store| {
        let handle = LoopHandle::new();
        (Arc::new(WakingStore::new(Shared(store), handle.clone())) as Arc<dyn Store>, handle)
    })
}

/// To be wrapped.
#[derive(Debug)]
pub struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}

/// Waits until this is so; a test whose wait is never over fails.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("in vain: {what}");
}

/// A worker on a thread of its own, which is stopped and waited for at the latest when this is dropped.
pub struct Run {
    handle: LoopHandle,
    thread: Option<std::thread::JoinHandle<Result<WorkerReport>>>,
}

pub fn run(worker: Worker, handle: &LoopHandle) -> Run {
    let own = handle.clone();
    Run { handle: handle.clone(), thread: Some(std::thread::spawn(move || worker.run(&own))) }
}

impl Run {
    pub fn stop(mut self) -> WorkerReport {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A gate that handlers wait at, and whose waiting they count.
#[derive(Debug, Clone)]
pub struct Gate(LoopHandle);

impl Gate {
    pub fn new() -> Self {
        Self(LoopHandle::new())
    }

    pub fn open(&self) {
        self.0.stop();
    }

    pub fn pass(&self) {
        while !self.0.is_stopped() {
            self.0.wait(MINUTE);
        }
    }
}
