//! The hosts that others copy heed what the store tells them: a lost lease ends the work, a busy store does not.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::StoreErrorKind;
use stationmaster::service::{Admitter, Keeper, Kept, Reaper, Service};
use stationmaster::store::{MemoryStore, Store, TxMode};
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{Error, NewTask, Result, TaskKey, TaskRecord, TaskState, Timestamp};

#[path = "../examples/threads_host.rs"]
#[allow(dead_code)]
mod threads_host;

#[cfg(feature = "tokio")]
#[path = "../examples/tokio_host.rs"]
#[allow(dead_code)]
mod tokio_host;

fn key() -> TaskKey {
    TaskKey::new("ns", "w", "r", "load").unwrap()
}

fn state(store: &dyn Store) -> TaskState {
    store.read(|tx| tx.tasks(&[key()])).unwrap().remove(0).unwrap().state
}

/// A task that was granted at this instant, and the keeper of its lease. Every fourth is a sensor in these examples;
/// it is none of these.
fn granted(store: &Arc<dyn Store>, now: Timestamp) -> (TaskRecord, Keeper) {
    store.write(|tx| tx.enqueue(now, &[NewTask::new(key())])).unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let keeper = admitter.keeper();
    (admitter.tick(now).unwrap().granted.remove(0), keeper)
}

/// What becomes of the attempt at a task when the call with this number finds the store busy. Tells also whether one did.
fn with_a_busy_call(
    at: u64,
    attempt: impl FnOnce(&Arc<dyn Store>, Kept, TaskRecord) -> Result<()>,
) -> (bool, TaskState) {
    let faults = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
    let store: Arc<dyn Store> = faults.clone();
    let (task, keeper) = granted(&store, SystemClock.now());
    let kept = keeper.keep(&task);
    faults.arm(Fault::new(at, When::Before, StoreErrorKind::Busy));
    attempt(&store, kept, task).unwrap_or_else(|error| panic!("busy at call {at}: {error}"));
    (faults.disarm().is_some(), state(&*store))
}

/// Has each call of an attempt find the store busy, all side by side.
fn every_call_may_be_busy(attempt: impl Fn(&Arc<dyn Store>, Kept, TaskRecord) -> Result<()> + Sync) {
    let attempt = &attempt;
    let ends: Vec<(bool, TaskState)> = std::thread::scope(|threads| {
        let attempts: Vec<_> =
            (1..=24).map(|at| threads.spawn(move || with_a_busy_call(at, attempt))).collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    });
    assert!(ends.iter().all(|(_, state)| *state == TaskState::Success), "{ends:?}");
    let struck = ends.iter().filter(|(struck, _)| *struck).count();
    assert!((6..24).contains(&struck), "{struck} calls were hit");
}

#[test]
fn a_busy_store_ends_no_attempt_of_a_thread() {
    every_call_may_be_busy(|store, kept, task| threads_host::attempt(&**store, &kept, &task));
}

#[test]
fn a_thread_whose_lease_was_lost_stops() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (task, mut keeper) = granted(&store, Timestamp::UNIX_EPOCH);
    let kept = keeper.keep(&task);
    assert_eq!(keeper.tick(SystemClock.now()).unwrap().renewed, 1);
    assert!(!kept.is_lost());

    let mut reaper = Reaper::new(store.clone());
    let mut later = SystemClock.now();
    while state(&*store) == TaskState::Queued {
        later += Duration::from_secs(60);
        reaper.tick(later).unwrap();
    }
    keeper.tick(later).unwrap();
    assert!(kept.is_lost());
    let stale = threads_host::attempt(&*store, &kept, &task);
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
}

#[test]
fn work_under_a_lease_that_could_not_be_renewed_is_not_finished() {
    let faults = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
    let store: Arc<dyn Store> = faults.clone();
    let (task, mut keeper) = granted(&store, SystemClock.now());
    let kept = keeper.keep(&task);
    faults.refuse(TxMode::Write, 1);
    assert_eq!(keeper.tick(SystemClock.now() + Duration::from_secs(60)).unwrap().expired, [task.lease_ref()]);
    threads_host::attempt(&*store, &kept, &task).unwrap();
    assert_eq!(state(&*store), TaskState::Running);
}

#[test]
#[cfg(feature = "tokio")]
fn a_busy_store_ends_no_attempt_of_a_tokio_task() {
    use stationmaster::service::LoopHandle;
    use stationmaster::tokio::AsyncStore;

    every_call_may_be_busy(|store, kept, task| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = AsyncStore::new(store.clone());
        runtime.block_on(tokio_host::work(store, LoopHandle::new(), kept, task))
    });
}
