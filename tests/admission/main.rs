//! Pools and admission on every store, by a clock that the tests move.

mod ahead;
mod bad_input;
mod caps;
mod hiding;
mod lanes;
mod needs;
mod overdue;
mod policies;
mod pools;
mod queues;
mod rules;
mod shares;
#[path = "../stores/mod.rs"]
mod stores;

use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::admission::Policy;
use stationmaster::ops::{Admission, AdmitRequest, Finish};
use stationmaster::pool::{PoolRecord, PoolSpec, Slots};
use stationmaster::store::Store;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, Timestamp};
use stores::stores;

/// A store, and how often it was ticked.
struct Scene<'a> {
    store: &'a dyn Store,
    ticks: std::cell::Cell<u32>,
}

/// Runs a scenario on a new store of each kind; no counter may be wrong at its end.
fn on_every_store(scenario: impl Fn(&Scene<'_>)) {
    for store in stores() {
        scenario(&Scene { store: &*store, ticks: 0.into() });
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// A task of pool `db`.
fn db(name: &str, slots: u32) -> NewTask {
    NewTask::new(key(name)).pool("db".try_into().unwrap()).pool_slots(slots)
}

fn names(tasks: &[TaskRecord]) -> Vec<&str> {
    tasks.iter().map(|task| task.key.task.as_str()).collect()
}

impl Scene<'_> {
    fn pool(&self, name: &str, slots: Slots) {
        self.store.write(|tx| tx.define([PoolSpec::new(name, slots)?], IfExists::Replace)).unwrap();
    }

    fn record(&self, name: &str) -> PoolRecord {
        self.store.read(|tx| tx.pools(&[name.try_into()?])).unwrap().remove(0).unwrap()
    }

    fn put(&self, now: i64, tasks: &[NewTask]) {
        self.store.write(|tx| tx.enqueue(at(now), tasks)).unwrap();
    }

    fn order(&self, budget: usize) -> AdmitRequest {
        self.ticks.set(self.ticks.get() + 1);
        let request = format!("tick-{}", self.ticks.get());
        AdmitRequest::new("holder".try_into().unwrap(), request.try_into().unwrap(), budget, secs(1_000_000))
    }

    /// Makes a tick, and compares it with its preview.
    fn admit(&self, now: i64, order: &AdmitRequest) -> Admission {
        let preview = self.store.read(|tx| tx.preview(at(now), order)).unwrap();
        let admission = self.admit_again(now, order);
        assert_eq!(names(&preview.granted), names(&admission.granted));
        assert_eq!((&preview.refusals, &preview.missing), (&admission.refusals, &admission.missing));
        assert_eq!((preview.promoted, preview.more_lanes), (admission.promoted, admission.more_lanes));
        // A tick that leaves lanes unread is due at once.
        assert!(admission.more_lanes || preview.next_due == admission.next_due);
        admission
    }

    /// Makes a tick by a name that may have been used. A preview takes each for a new one.
    fn admit_again(&self, now: i64, order: &AdmitRequest) -> Admission {
        self.store.write(|tx| tx.admit(at(now), order)).unwrap()
    }

    fn tick(&self, now: i64, policy: &Policy) -> Admission {
        self.admit(now, &self.order(usize::MAX).policy(policy.clone()))
    }

    fn start(&self, now: i64, tasks: &[TaskRecord]) {
        let leases: Vec<LeaseRef> = tasks.iter().map(TaskRecord::lease_ref).collect();
        self.store.write(|tx| tx.start(at(now), &leases)).unwrap();
    }

    fn succeed(&self, now: i64, task: &TaskRecord) {
        self.store.write(|tx| tx.finish(at(now), &[Finish::success(task.lease_ref())])).unwrap();
    }

    fn why(&self, task: &str) -> String {
        self.store.read(|tx| tx.explain(at(0), &[key(task)])).unwrap()[0].to_string()
    }

    fn task(&self, name: &str) -> TaskRecord {
        self.store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
    }
}
