//! The handlers that others copy: a busy store costs them no task, whichever call it strikes.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::StoreErrorKind;
use stationmaster::service::{LoopHandle, WakingStore, Worker};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{NewTask, TaskKey, TaskState};

#[path = "../examples/threads_host.rs"]
#[allow(dead_code)]
mod threads_host;

#[cfg(feature = "tokio")]
#[path = "../examples/tokio_host.rs"]
#[allow(dead_code)]
mod tokio_host;

/// Has a worker work on four tasks, of which one waits, in a store that is busy at this call. Returns whether it was.
fn survives(at: u64, handlers: impl FnOnce(Worker, Arc<dyn Store>) -> Worker) -> bool {
    let (handle, memory) = (LoopHandle::new(), Arc::new(MemoryStore::new()));
    let faults = Arc::new(WakingStore::new(FaultStore::new(memory.clone()), handle.clone()));
    let keys =
        ["load-1", "load-2", "load-3", "wait-4"].map(|name| TaskKey::new("ns", "w", "r", name).unwrap());
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).max_attempts(5).build().unwrap();
    let tasks = keys.clone().map(|key| NewTask::new(key).retry(retry.clone()));
    faults.write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();

    let store: Arc<dyn Store> = faults.clone();
    faults.inner().arm(Fault::new(at, When::Before, StoreErrorKind::Busy));
    let worker = handlers(Worker::new(store.clone(), "h".try_into().unwrap()).places(2), store);
    let ends = handle.clone();
    let working = thread::spawn(move || worker.run(&handle));
    let (mut states, is_over) =
        (Vec::new(), |state: TaskState| state.is_end() || state == TaskState::Sensing);
    for _ in 0..60_000 {
        let found = memory.read(|tx| tx.tasks(&keys)).unwrap();
        states = found.into_iter().flatten().map(|task| task.state).collect();
        if states.iter().all(|state| is_over(*state)) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    ends.stop();
    working.join().unwrap().unwrap();
    let [done, waits] = [TaskState::Success, TaskState::Sensing];
    assert_eq!(states, [done, done, done, waits], "busy at call {at}");
    faults.inner().disarm().is_some()
}

/// Each call is struck in a world of its own, all side by side.
fn survive_each(handlers: impl Fn(Worker, Arc<dyn Store>) -> Worker + Sync) {
    let handlers = &handlers;
    let struck: Vec<bool> = thread::scope(|threads| {
        let worlds: Vec<_> = (1..=24).map(|at| threads.spawn(move || survives(at, handlers))).collect();
        worlds.into_iter().map(|world| world.join().unwrap()).collect()
    });
    assert!(struck.iter().filter(|struck| **struck).count() >= 6, "{struck:?}");
}

#[test]
fn a_busy_store_costs_no_task_of_the_threads() {
    survive_each(|worker, _| worker.handler(threads_host::work));
}

#[test]
#[cfg(feature = "tokio")]
fn a_busy_store_costs_no_task_of_the_futures() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.handle();
    survive_each(|worker, store| {
        let store = stationmaster::tokio::AsyncStore::new(store);
        worker.handler_async(handle, move |attempt| tokio_host::work(store.clone(), attempt))
    });
}
