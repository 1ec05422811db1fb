//! A pool whose sensing tasks keep their slots: a task that goes on does so in the slots that it kept.
#![allow(clippy::unwrap_used)]

mod stores;

use std::time::Duration;

use stationmaster::admission::{AirflowWindow, IfExists, Policy, Reason};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::ops::{AdmitRequest, Explanation, Finish, Mark, Position};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::store::Store;
use stationmaster::store::contract::Ending;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::stores;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

fn task(name: &str) -> NewTask {
    let retry = RetryPolicy::fixed(Duration::from_secs(5)).build().unwrap();
    NewTask::new(key(name)).pool("db".try_into().unwrap()).retry(retry)
}

fn request(now: i64) -> AdmitRequest {
    let name = format!("tick {now}").as_str().try_into().unwrap();
    AdmitRequest::new("holder".try_into().unwrap(), name, 99, Duration::from_secs(60))
}

fn admitted(store: &dyn Store, now: i64) -> Vec<String> {
    let admission = store.write(|tx| tx.admit(at(now), &request(now))).unwrap();
    admission.granted.into_iter().map(|task| task.key.task.to_string()).collect()
}

fn record(store: &dyn Store, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

fn used(store: &dyn Store) -> i64 {
    let pool = store.read(|tx| tx.pools(&["db".try_into().unwrap()])).unwrap().remove(0);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    pool.unwrap().used
}

/// A pool of two slots, both kept by tasks that sense.
fn two_sensing(store: &dyn Store) -> Vec<LeaseRef> {
    let pool = PoolSpec::new("db", Slots::Limited(2)).unwrap().sensing_keeps_slots(true);
    store.write(|tx| tx.define([pool.clone()], IfExists::Replace)).unwrap();
    store.write(|tx| tx.enqueue(at(0), &[task("a"), task("b")])).unwrap();
    assert_eq!(admitted(store, 0), ["a", "b"]);
    let leases: Vec<LeaseRef> = ["a", "b"].map(|name| record(store, name).lease_ref()).to_vec();
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(600)).unwrap();
    let sensor = |lease: &LeaseRef| {
        let context = PokeContext::from_json("{}").unwrap();
        NewSensor::new(*lease, "file".try_into().unwrap(), context, settings)
    };
    let sensors: Vec<NewSensor> = leases.iter().map(sensor).collect();
    store
        .write(|tx| {
            tx.start(at(1), &leases)?;
            tx.register(at(2), &sensors)
        })
        .unwrap();
    assert_eq!(used(store), 2);
    leases
}

fn end(store: &dyn Store, now: i64, lease: LeaseRef, reason: EndReason, to: TaskState) {
    let ended = store.write(|tx| tx.end_sensors(at(now), &[(lease, Ending::new(reason, to))])).unwrap();
    assert_eq!(ended, [true]);
}

/// Both sensors land, and their tasks go on.
fn two_resumed(store: &dyn Store) {
    for lease in two_sensing(store) {
        end(store, 3, lease, EndReason::Landed, TaskState::Scheduled);
    }
}

#[test]
fn a_pool_that_is_full_of_resumed_tasks_drains() {
    for store in stores() {
        let store = &*store;
        two_resumed(store);
        store.write(|tx| tx.enqueue(at(3), &[task("urgent").priority(9)])).unwrap();
        assert_eq!(used(store), 2, "nobody else gets them");

        let names = ["urgent", "a", "b"].map(key);
        let why = store.read(|tx| tx.explain(at(4), &names)).unwrap();
        assert!(
            matches!(&why[0], Explanation::Refused { reason: Reason::PoolFull { open: 0, .. }, .. }),
            "{why:?}"
        );
        assert_eq!(why[1..], [Explanation::Fits, Explanation::Fits]);
        let places = store.read(|tx| tx.positions(&names, 9)).unwrap();
        assert_eq!(places, [Position::Before(0), Position::Before(1), Position::Before(2)]);
        let preview = store.read(|tx| tx.preview(at(4), &request(4))).unwrap();
        assert_eq!(preview.granted.len(), 2);

        assert_eq!(admitted(store, 4), ["a", "b"]);
        assert_eq!((used(store), record(store, "a").held_slots), (2, 1));
        let leases = ["a", "b"].map(|name| record(store, name).lease_ref());
        store
            .write(|tx| {
                tx.start(at(5), &leases)?;
                tx.finish(at(6), &leases.map(Finish::success))
            })
            .unwrap();
        assert_eq!(used(store), 0);
        assert_eq!(admitted(store, 7), ["urgent"]);
    }
}

#[test]
fn what_ends_a_resumed_task_gives_its_slots_back_once() {
    for store in stores() {
        let store = &*store;
        two_resumed(store);
        let marks = [Mark::new(key("a"), TaskState::Skipped, "by hand")];
        store
            .write(|tx| {
                tx.cancel(at(4), Duration::ZERO, &[key("b")], "by hand")?;
                tx.mark(at(4), &marks)
            })
            .unwrap();
        assert_eq!(used(store), 0);
        assert_eq!(["a", "b"].map(|name| record(store, name).held_slots), [0, 0]);
        assert_eq!(admitted(store, 5), [""; 0]);
    }
}

/// Only a task that goes on keeps its slots: one that is tried again waits as it did before its first attempt.
#[test]
fn a_retry_after_a_sensor_gives_its_slots_back() {
    for store in stores() {
        let store = &*store;
        let leases = two_sensing(store);
        end(store, 3, leases[0], EndReason::Failed, TaskState::Failed);
        assert_eq!((record(store, "a").state, used(store)), (TaskState::UpForRetry, 1));
        end(store, 3, leases[1], EndReason::Landed, TaskState::Success);
        assert_eq!(used(store), 0);
    }
}

/// A lease that is lost or given back returns everything, whatever the task kept before.
#[test]
fn a_resumed_task_that_comes_back_waits_as_any_other() {
    for store in stores() {
        let store = &*store;
        two_resumed(store);
        assert_eq!(admitted(store, 4), ["a", "b"]);
        let leases = ["a", "b"].map(|name| record(store, name).lease_ref());
        store.write(|tx| tx.finish(at(5), &leases.map(Finish::given_back))).unwrap();
        assert_eq!((used(store), record(store, "a").held_slots), (0, 0));
        assert_eq!(admitted(store, 6), ["a", "b"]);
        assert_eq!(used(store), 2);
    }
}

/// It is in no window, which would be of the size of the open slots: none.
#[test]
fn a_window_admits_what_kept_its_slots_first() {
    for store in stores() {
        let store = &*store;
        two_resumed(store);
        store.write(|tx| tx.enqueue(at(3), &[task("urgent").priority(9)])).unwrap();
        let window = request(4).policy(Policy::AirflowWindow(AirflowWindow::new(1)));
        let admission = store.write(|tx| tx.admit(at(4), &window)).unwrap();
        assert_eq!(admission.granted.len(), 2);
        assert!(!admission.refusals[0].keeps_slots);
        assert!(matches!(admission.refusals[0].reason, Reason::PoolFull { .. }), "{admission:?}");
    }
}
