//! What the hosts have in common: the crate's own side of a shop that ships orders.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::sqlite::SqliteOptions;
use stationmaster::store::{SqliteStore, Store};
use stationmaster::{TaskKey, TaskRecord, TaskState, Timestamp};

pub const NOW: i64 = 1_700_000_000_000_000;
pub const NAMESPACE: &str = "shop";
pub const WORKFLOW: &str = "orders";
pub const TASK: &str = "ship";

#[derive(Debug, Clone, Copy)]
pub struct Lease {
    pub id: i64,
    pub epoch: i64,
}

pub struct Shop {
    store: Arc<dyn Store>,
}

impl Shop {
    pub fn open(path: &Path) -> Self {
        Self::of(SqliteStore::open(path, SqliteOptions::new()).expect("a store"))
    }

    pub fn of(store: impl Store + 'static) -> Self {
        Self { store: Arc::new(store) }
    }

    pub fn task(&self, order: i64) -> Option<TaskRecord> {
        let key = TaskKey::new(NAMESPACE, WORKFLOW, order.to_string(), TASK).expect("a key");
        self.store.read(|tx| tx.tasks(&[key.clone()])).expect("tasks").remove(0)
    }

    /// Admits the task that ships this order.
    pub fn admit(&self, order: i64) -> Lease {
        self.admit_all(&[order])[0]
    }

    /// Admits the tasks that ship these orders.
    pub fn admit_all(&self, orders: &[i64]) -> Vec<Lease> {
        let mut admitter = Admitter::new(self.store.clone(), "packer".try_into().expect("a name"))
            .lease(Duration::from_secs(30));
        let granted = admitter.tick(Timestamp::from_micros(NOW)).expect("a tick").granted;
        assert_eq!(granted.len(), orders.len());
        let lease = |(order, granted): (&i64, TaskRecord)| {
            assert_eq!(Some(&granted.key), self.task(*order).as_ref().map(|task| &task.key));
            assert_eq!(granted.payload, format!("{{\"order\":{order}}}"));
            Lease { id: granted.id.0, epoch: granted.epoch }
        };
        orders.iter().zip(granted).map(lease).collect()
    }

    /// The packer is silent for too long: its lease is lost.
    pub fn lose(&self) {
        let mut upkeep = Upkeep::new(self.store.clone()).grace(Duration::ZERO);
        let later = Timestamp::from_micros(NOW + 60_000_000);
        assert_eq!(upkeep.tick(later).expect("a tick").reaped.len(), 1);
    }

    pub fn check_shipped(&self, order: i64) {
        let task = self.task(order).expect("the task");
        assert_eq!((task.state, task.value.as_deref()), (TaskState::Success, Some("by air")));
        self.check_counters();
    }

    #[allow(dead_code)]
    pub fn check_cancelled(&self, order: i64) {
        let task = self.task(order).expect("the task");
        assert_eq!((task.state, task.message.as_deref()), (TaskState::Skipped, Some("not wanted")));
        self.check_counters();
    }

    fn check_counters(&self) {
        self.store
            .read(|tx| {
                assert_eq!(tx.audit()?, []);
                assert!(tx.all_pools()?.iter().all(|pool| pool.used == 0), "all slots are back");
                Ok(())
            })
            .expect("an audit");
    }
}

pub fn is_stale(message: &str) -> bool {
    message.starts_with("stationmaster: stale lease")
}
