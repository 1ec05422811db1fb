//! What the hosts have in common: the crate's own side of a shop that ships orders.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stationmaster::service::{Admitter, Reaper, Service};
use stationmaster::store::SqliteStore;
use stationmaster::store::sqlite::SqliteOptions;
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
    store: Arc<SqliteStore>,
}

impl Shop {
    pub fn open(path: &Path) -> Self {
        Self { store: Arc::new(SqliteStore::open(path, SqliteOptions::new()).expect("a store")) }
    }

    pub fn task(&self, order: i64) -> Option<TaskRecord> {
        let key = TaskKey::new(NAMESPACE, WORKFLOW, order.to_string(), TASK).expect("a key");
        self.store.read(|tx| tx.tasks(&[key.clone()])).expect("tasks").remove(0)
    }

    /// Admits the task that ships this order.
    pub fn admit(&self, order: i64) -> Lease {
        let mut admitter = Admitter::new(self.store.clone(), "packer".try_into().expect("a name"))
            .lease(Duration::from_secs(30));
        let granted = admitter.tick(Timestamp::from_micros(NOW)).expect("a tick").granted;
        assert_eq!(granted.len(), 1);
        assert_eq!(Some(&granted[0].key), self.task(order).as_ref().map(|task| &task.key));
        assert_eq!(granted[0].payload, format!("{{\"order\":{order}}}"));
        Lease { id: granted[0].id.0, epoch: granted[0].epoch }
    }

    /// The packer is silent for too long: its lease is lost.
    pub fn lose(&self) {
        let mut reaper = Reaper::new(self.store.clone()).grace(Duration::ZERO);
        let later = Timestamp::from_micros(NOW + 60_000_000);
        assert_eq!(reaper.tick(later).expect("a tick").reaped.len(), 1);
    }

    pub fn check_shipped(&self, order: i64) {
        let task = self.task(order).expect("the task");
        assert_eq!((task.state, task.value.as_deref()), (TaskState::Success, Some("by air")));
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
