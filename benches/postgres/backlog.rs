//! A schema of the benchmark's own, and tasks that wait in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stationmaster::admission::IfExists;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::postgres::{PostgresOptions, Schema};
use stationmaster::store::{Durability, PostgresStore, Store};
use stationmaster::{NewTask, TaskKey, Timestamp};

use crate::admitter;
use crate::bare::Client;

pub(crate) const POOLS: usize = 10;
/// At most this many tasks per transaction.
const BULK: usize = 10_000;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000)
}

/// A schema; it is dropped with this.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) commit: Durability,
}

impl Place {
    pub(crate) fn new(commit: Durability) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("STATIONMASTER_TEST_POSTGRES")
            .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".into());
        let schema = format!("sm_bench_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url, schema, commit }
    }

    pub(crate) fn open(&self) -> Arc<dyn Store> {
        let schema = Schema::new(&self.schema).expect("a name");
        let options = PostgresOptions::new().schema(schema).durability(self.commit);
        Arc::new(PostgresStore::connect(&self.url, options).unwrap_or_else(|error| {
            panic!("{error}: name a server in STATIONMASTER_TEST_POSTGRES; docs/postgresql.md says how to start one")
        }))
    }

    /// Has the server gather its statistics now, and not at some time in the middle of the measurement.
    pub(crate) fn analyze(&self) {
        let schema = &self.schema;
        Client::connect(self).run(&format!(
            "VACUUM ANALYZE {schema}.task, {schema}.ready, {schema}.lane, {schema}.lane_use, {schema}.pool"
        ));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        Client::connect(self).run(&format!("DROP SCHEMA {} CASCADE", self.schema));
    }
}

/// Ten pools with room for all, and this many tasks.
pub(crate) fn fill(store: &Arc<dyn Store>, tasks: usize) {
    let name = |n: usize| format!("pool-{}", n % POOLS);
    let pools: Vec<PoolSpec> =
        (0..POOLS).map(|n| PoolSpec::new(name(n), Slots::Limited(1_000_000)).expect("a pool")).collect();
    store.write(|tx| tx.define(&pools, IfExists::Replace)).expect("written");
    for first in (0..tasks).step_by(BULK) {
        let new: Vec<NewTask> = (first..tasks.min(first + BULK))
            .map(|n| {
                let (run, task) = (format!("run-{}", n / 100), format!("task-{n}"));
                let key = TaskKey::new("bench", "wide", run, task).expect("a key");
                NewTask::new(key).pool(name(n).try_into().expect("a name")).priority((n % 7) as i32)
            })
            .collect();
        store.write(|tx| tx.enqueue(now(), &new)).expect("enqueued");
    }
    // A tick makes the lanes, which hand-written SQL needs as well.
    admitter(store, "fill").admit(now(), 0).expect("a tick");
}
