//! What a worker cancels, and how it stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::ops::Outcome;
use stationmaster::service::{Attempt, Cancelled, LoopHandle};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::testing::FaultStore;
use stationmaster::{Result, TaskRecord, TaskState};

use crate::scene::*;
use crate::stores::stores;

#[test]
fn what_runs_too_long_is_cancelled_and_then_given_up() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("heeds").payload("1"), task("ignores").payload("1"), task("free")]);
        let (gate, whys) = (Gate::new(), Arc::new(Mutex::new(BTreeMap::new())));
        let (passes, told) = (gate.clone(), whys.clone());
        let limited = |task: &TaskRecord| (!task.payload.is_empty()).then_some(Duration::from_millis(1));
        let running = run(
            worker(&store).patience(Duration::from_secs(1)).max_run(limited).handler(
                move |attempt: &Attempt| {
                    let name = attempt.task().key.task.as_str();
                    assert_eq!(attempt.deadline().is_some(), name != "free");
                    match name {
                        "heeds" => {
                            while !attempt.wait(MINUTE) {}
                            told.lock().insert("heeds", attempt.cancelled());
                            return Err("cancelled");
                        }
                        "ignores" => passes.pass(),
                        _ => {}
                    }
                    Ok(())
                },
            ),
            &handle,
        );
        until("all have ended", || {
            ["heeds", "ignores", "free"].iter().all(|name| state(&store, name).is_end())
        });
        assert_eq!(whys.lock().get("heeds"), Some(&Some(Cancelled::RanTooLong)));
        assert!(record(&store, "heeds").message.unwrap().starts_with("cancelled"));
        assert_eq!(state(&store, "ignores"), TaskState::Failed, "although its handler is still at work");
        assert!(record(&store, "ignores").message.unwrap().contains("after its longest run was over"));
        assert_eq!(state(&store, "free"), TaskState::Success);
        gate.open();
        let report = running.stop();
        assert_eq!((report.stored, report.refused, report.working), (3, 0, vec![]), "each once");
    }
}

#[test]
fn a_limit_that_panics_fails_the_attempt() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a")]);
        let limited = worker(&store).max_run(|_| panic!("on purpose"));
        let running = run(limited.handler(|_: &Attempt| ()), &handle);
        until("it has ended", || state(&store, "a") == TaskState::Failed);
        running.stop();
        assert!(record(&store, "a").message.unwrap().contains("on purpose"));
    }
}

#[test]
fn a_clean_stop_stores_what_ends_and_gives_back_what_did_not() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("ends"), task("gives-back"), task("waits")]);
        let (gate, begun) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let (passes, counts) = (gate.clone(), begun.clone());
        let running = run(
            worker(&store).places(2).handler(move |attempt: &Attempt| {
                counts.fetch_add(1, Ordering::SeqCst);
                while !attempt.wait(MINUTE) {}
                assert_eq!(attempt.cancelled(), Some(Cancelled::Stopping));
                passes.pass();
                match attempt.task().key.task.as_str() {
                    "gives-back" => Outcome::GivenBack,
                    _ => ().into(),
                }
            }),
            &handle,
        );
        until("both work", || begun.load(Ordering::SeqCst) == 2);
        handle.stop();
        gate.open();
        let report = running.stop();
        assert_eq!((report.stored, report.working.len(), report.unstored.len()), (2, 0, 0));
        assert_eq!(begun.load(Ordering::SeqCst), 2, "nothing begins after the stop");
        let states = ["ends", "gives-back", "waits"].map(|name| state(&store, name));
        assert_eq!(states, [TaskState::Success, TaskState::Scheduled, TaskState::Scheduled]);
        assert!(store.read(|tx| tx.all_pools()).unwrap().iter().all(|pool| pool.used == 0));
    }
}

/// The stop comes while the store grants the task.
#[test]
fn what_was_granted_and_did_not_begin_is_given_back() {
    for store in stores() {
        let (faults, handle) = (Arc::new(FaultStore::new(store.clone())), LoopHandle::new());
        enqueue(&store, &[task("a")]);
        let stop = handle.clone();
        let begun = Arc::new(AtomicUsize::new(0));
        faults.interfere("grant_if_open", 1, move |_| {
            stop.stop();
            Ok(())
        });
        let counts = begun.clone();
        let shared: Arc<dyn Store> = faults;
        let report = worker(&shared).handler(move |_: &Attempt| {
            counts.fetch_add(1, Ordering::SeqCst);
        });
        let report = report.run(&handle).unwrap();
        assert_eq!((report.stored, begun.load(Ordering::SeqCst)), (1, 0));
        let task = record(&store, "a");
        assert_eq!((task.state, task.attempt, task.forgiven), (TaskState::Scheduled, 1, 1));
    }
}

#[test]
fn a_handler_that_ignores_the_stop_is_left_behind_with_its_lease() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("hangs"), task("ends")]);
        let (gate, begun) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let (passes, counts) = (gate.clone(), begun.clone());
        let running = run(
            worker(&store).patience(Duration::from_secs(2)).handler(move |attempt: &Attempt| {
                counts.fetch_add(1, Ordering::SeqCst);
                match attempt.task().key.task.as_str() {
                    "hangs" => passes.pass(),
                    _ => while !attempt.wait(MINUTE) {},
                }
            }),
            &handle,
        );
        until("both work", || begun.load(Ordering::SeqCst) == 2);
        let report = running.stop();
        assert_eq!((report.stored, &report.working[..]), (1, &[record(&store, "hangs").lease_ref()][..]));
        assert_eq!(state(&store, "ends"), TaskState::Success);
        assert_eq!(state(&store, "hangs"), TaskState::Running, "it is not given to another while it works");
        gate.open();
    }
}

#[test]
fn a_store_that_hangs_does_not_hold_up_the_stop() {
    let (gate, is_hanging) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let store: Arc<dyn Store> =
        Arc::new(Hanging { inner: inner.clone(), gate: gate.clone(), is_hanging: is_hanging.clone() });
    enqueue(&store, &[task("a")]);
    let (handle, hangs) = (LoopHandle::new(), is_hanging.clone());
    let worker = worker(&store).patience(Duration::from_millis(20));
    let running = run(worker.handler(move |_: &Attempt| hangs.store(true, Ordering::SeqCst)), &handle);
    until("it has returned", || is_hanging.load(Ordering::SeqCst));
    let report = running.stop();
    assert_eq!((report.stored, report.unstored), (0, vec![record(&inner, "a").lease_ref()]));
    assert_eq!(state(&inner, "a"), TaskState::Running);
    gate.open();
}

/// A store whose writes hang once they are to.
#[derive(Debug)]
struct Hanging {
    inner: Arc<dyn Store>,
    gate: Gate,
    is_hanging: Arc<AtomicBool>,
}

impl Store for Hanging {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        if mode == TxMode::Write && self.is_hanging.load(Ordering::SeqCst) {
            self.gate.pass();
        }
        self.inner.transact(mode, body)
    }
}
