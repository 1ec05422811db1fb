//! A worker runs what it is granted, ends it once, and stops without leaving anything: handlers on threads.
#![allow(clippy::unwrap_used)]

mod stores;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, Invalid, StoreErrorKind};
use stationmaster::ops::{Fenced, Finish, Outcome};
use stationmaster::service::{
    Cancelled, Job, LoopHandle, Reaper, Service, WakingStore, Worker, WorkerReport,
};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState};
use stores::stores;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

fn task(name: &str) -> NewTask {
    NewTask::new(key(name))
}

fn enqueue(store: &Arc<dyn Store>, tasks: &[NewTask]) {
    store.write(|tx| tx.enqueue(SystemClock.now(), tasks)).unwrap();
}

fn record(store: &Arc<dyn Store>, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

fn state(store: &Arc<dyn Store>, name: &str) -> TaskState {
    record(store, name).state
}

fn worker(store: &Arc<dyn Store>) -> Worker {
    Worker::new(store.clone(), "worker".try_into().unwrap()).places(4).longest_wait(HOUR)
}

/// A store of each kind, whose commits wake this handle.
fn waking(handle: &LoopHandle) -> impl Iterator<Item = Arc<dyn Store>> {
    stores().map(|store| Arc::new(WakingStore::new(Shared(store), handle.clone())) as Arc<dyn Store>)
}

/// To be wrapped.
#[derive(Debug)]
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}

/// Waits until this is so; a test that waits in vain fails.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("in vain: {what}");
}

/// A worker on a thread of its own, which is stopped and waited for at the latest when this is dropped.
struct Run {
    handle: LoopHandle,
    thread: Option<std::thread::JoinHandle<Result<WorkerReport>>>,
}

fn run(worker: Worker, handle: &LoopHandle) -> Run {
    let own = handle.clone();
    Run { handle: handle.clone(), thread: Some(std::thread::spawn(move || worker.run(&own))) }
}

impl Run {
    fn stop(mut self) -> WorkerReport {
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
#[derive(Clone)]
struct Gate(LoopHandle);

impl Gate {
    fn new() -> Self {
        Self(LoopHandle::new())
    }

    fn open(&self) {
        self.0.stop();
    }

    fn pass(&self) {
        while !self.0.is_stopped() {
            self.0.wait(MINUTE);
        }
    }
}

#[test]
fn what_a_handler_returns_is_how_its_task_ends() {
    let handle = LoopHandle::new();
    for store in waking(&handle) {
        let handle = LoopHandle::new();
        let retry = RetryPolicy::fixed(HOUR).max_attempts(2).build().unwrap();
        let names = ["unit", "value", "error", "retry", "never", "panic", "skip", "recorded"];
        let tasks: Vec<NewTask> = names.iter().map(|name| task(name).payload(*name)).collect();
        let tasks: Vec<NewTask> = tasks
            .into_iter()
            .map(|task| match task.payload.as_str() {
                "retry" | "never" => task.retry(retry.clone()),
                "recorded" => task.record_attempts(true),
                _ => task,
            })
            .collect();
        enqueue(&store, &tasks);
        let running = run(
            worker(&store).handler(|job: &Job| {
                assert_eq!(job.task().attempt, 1);
                assert!(job.holds(SystemClock.now()) && !job.is_cancelled() && job.deadline().is_none());
                match job.task().payload.as_str() {
                    "value" => Ok(Outcome::Success { value: Some("7".into()) }),
                    "error" | "retry" => Err("no route to host"),
                    "never" => Ok(Finish::failed(job.lease(), "bad input").outcome),
                    "panic" => panic!("on {}", "purpose"),
                    "skip" => Ok(Outcome::Skipped { message: "not needed".into() }),
                    _ => Ok(().into()),
                }
            }),
            &handle,
        );
        let is_over = |name: &&str| {
            !matches!(state(&store, name), TaskState::Scheduled | TaskState::Queued | TaskState::Running)
        };
        until("all have ended", || names.iter().all(|name| is_over(&name)));
        assert_eq!(running.stop().stored, 8);
        let ended: BTreeMap<&str, (TaskState, Option<String>)> = names
            .into_iter()
            .map(|name| (name, record(&store, name)))
            .map(|(name, task)| (name, (task.state, task.message.or(task.value))))
            .collect();
        let text = |text: &str| Some(text.to_string());
        assert_eq!(ended["unit"], (TaskState::Success, None));
        assert_eq!(ended["recorded"], (TaskState::Success, None));
        assert_eq!(ended["value"], (TaskState::Success, text("7")));
        assert_eq!(ended["retry"], (TaskState::UpForRetry, text("no route to host")));
        assert_eq!(ended["skip"], (TaskState::Skipped, text("not needed")));
        assert_eq!((ended["error"].0, ended["panic"].0), (TaskState::Failed, TaskState::Failed));
        assert!(ended["error"].1.as_ref().unwrap().starts_with("no route to host"));
        assert!(ended["panic"].1.as_ref().unwrap().starts_with("the handler panicked: on purpose"));
        let runs = record(&store, "recorded").attempt_run(1).unwrap();
        let runs = store.read(|tx| tx.runs(&[runs.clone()])).unwrap();
        assert!(runs[0].as_ref().is_some_and(|run| run.stop.is_some()), "the attempt was recorded");
        assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    }
}
