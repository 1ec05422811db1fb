//! Fleets: running tasks that become sensors, some of which wait for the same target.

use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::service::Admitter;
use stationmaster::store::Store;
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};
use std::sync::Arc;

/// At most this many tasks per transaction.
const BULK: usize = 20_000;

pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000)
}

/// Tasks that run.
pub(crate) fn running(store: &Arc<dyn Store>, tasks: usize) -> Vec<LeaseRef> {
    let pool = PoolSpec::new("wide", Slots::Unlimited).expect("a pool");
    store.write(|tx| tx.define([&pool], IfExists::Replace)).expect("written");
    let mut admitter = Admitter::new(Arc::clone(store), "bench".try_into().expect("a name"))
        .lease(Duration::from_secs(86_400))
        .budget(BULK);
    let mut leases = Vec::with_capacity(tasks);
    for first in (0..tasks).step_by(BULK) {
        let new: Vec<NewTask> = (first..tasks.min(first + BULK))
            .map(|n| {
                let (run, task) = (format!("scheduled__2026-01-01T{:05}", n / 100), format!("wait_{n:07}"));
                let key = TaskKey::new("production", "warehouse_ingest", run, task).expect("a key");
                NewTask::new(key).pool("wide".try_into().expect("a name"))
            })
            .collect();
        store.write(|tx| tx.enqueue(now(), &new)).expect("enqueued");
        let granted = admitter.admit(now(), BULK).expect("admitted").granted;
        let bulk: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
        store.write(|tx| tx.start(now(), &bulk)).expect("started");
        leases.extend(bulk);
    }
    assert_eq!(leases.len(), tasks);
    leases
}

/// What they wait for: this many different targets.
pub(crate) fn waiting(leases: &[LeaseRef], targets: usize) -> Vec<NewSensor> {
    let settings = Settings::new(INTERVAL, Duration::from_secs(7 * 86_400)).expect("settings");
    leases
        .iter()
        .enumerate()
        .map(|(n, lease)| {
            let (table, hour) = (n % targets / 24, n % targets % 24);
            let text = format!(
                r#"{{"bucket":"warehouse","ds":"2026-01-01","partition":"region=eu/hour={hour:02}","table":"sales_{table:06}"}}"#
            );
            let context = PokeContext::from_json(&text).expect("a context");
            NewSensor::new(*lease, "partition".try_into().expect("a name"), context, settings)
        })
        .collect()
}

/// Registers them, at most [`BULK`] to a transaction.
pub(crate) fn registered(store: &Arc<dyn Store>, sensors: &[NewSensor]) {
    for bulk in sensors.chunks(BULK) {
        let answers = store.write(|tx| tx.register(now(), bulk)).expect("registered");
        assert_eq!(answers.len(), bulk.len());
    }
}

/// A fleet that waits.
pub(crate) fn made(store: &Arc<dyn Store>, sensors: usize, targets: usize) {
    let leases = running(store, sensors);
    registered(store, &waiting(&leases, targets));
}
