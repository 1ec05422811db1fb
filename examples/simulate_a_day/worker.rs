//! A worker process: its own admitter and keeper, and the tasks that it works on.

use std::collections::BTreeMap;
use std::sync::Arc;

use stationmaster::service::{Admitter, Keeper, Kept};
use stationmaster::store::Store;
use stationmaster::{LeaseRef, Result, TaskKey, TaskRecord};

use crate::workload::Workers;

#[derive(Debug)]
pub(crate) struct Worker {
    /// The process. `None` while it is down.
    pub(crate) process: Option<Process>,
    /// How many processes it has had.
    pub(crate) lives: u32,
    number: usize,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) admitter: Admitter,
    pub(crate) keeper: Keeper,
    pub(crate) at_work: BTreeMap<LeaseRef, (TaskRecord, Kept)>,
    places: usize,
}

impl Worker {
    /// A worker that is down.
    pub(crate) fn new(number: usize) -> Self {
        Self { process: None, lives: 0, number }
    }

    /// Starts a process, under a name that no process had before, because leases of the previous one may still
    /// be live.
    pub(crate) fn start(&mut self, store: &Arc<dyn Store>, workers: Workers) -> Result<&Process> {
        self.lives += 1;
        let name = format!("worker-{}.{}", self.number, self.lives);
        let admitter =
            Admitter::new(store.clone(), name.as_str().try_into()?).lease(workers.lease_s).budget(usize::MAX);
        let keeper = admitter.keeper();
        let process = Process { name, admitter, keeper, at_work: BTreeMap::new(), places: workers.places };
        Ok(self.process.insert(process))
    }
}

impl Process {
    pub(crate) fn free(&self) -> usize {
        self.places - self.at_work.len()
    }

    pub(crate) fn leases(&self) -> Vec<LeaseRef> {
        self.at_work.keys().copied().collect()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &TaskKey> {
        self.at_work.values().map(|(task, _)| &task.key)
    }
}
