//! Queries about tasks, sensors, events and runs.

use crate::error::Result;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::run::{ActiveQuery, RunKey, RunPlace, RunRecord};
use crate::sensor::{SensorEvent, SensorRecord};
use crate::store::{Discrepancy, ReadTx};
use crate::task::TaskRecord;
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns the tasks of these keys; `None` for a key without a task.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn tasks(&mut self, keys: &[TaskKey]) -> Result<Vec<Option<TaskRecord>>> {
        Ok(self.raw().tasks(keys)?)
    }

    /// Returns the tasks of these numbers; `None` for a number without a task.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn tasks_by_id(&mut self, ids: &[TaskId]) -> Result<Vec<Option<TaskRecord>>> {
        Ok(self.raw().tasks_by_id(ids)?)
    }

    /// Returns when the next lease expires; `None` if there is no lease. A host that calls
    /// [`Tx::reap`](crate::store::Tx::reap) itself waits until then.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.raw().next_expiry()?)
    }

    /// Returns the latest sensor of each of these tasks, waiting or ended; `None` for a task without a
    /// sensor.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn sensors(&mut self, tasks: &[TaskKey]) -> Result<Vec<Option<SensorRecord>>> {
        Ok(self.raw().sensors(tasks)?)
    }

    /// Returns events of ended sensors that are not acknowledged yet. They have numbers above `after` and are
    /// returned in order, at most `limit` of them.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn events(&mut self, after: u64, limit: usize) -> Result<Vec<SensorEvent>> {
        Ok(self.raw().events(after, limit)?)
    }

    /// Returns the runs of these keys; `None` for a key without a run.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn runs(&mut self, keys: &[RunKey]) -> Result<Vec<Option<RunRecord>>> {
        Ok(self.raw().runs(keys)?)
    }

    /// Returns one page of the runs that were active at some instant of the query's window, in the order of
    /// the query.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn active_runs(&mut self, query: &ActiveQuery) -> Result<Vec<RunRecord>> {
        Ok(self.raw().active_runs(query)?)
    }

    /// Returns the positions of the runs of [`Self::active_runs`] in its order. Without a filter the records
    /// are not read.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn active_run_places(&mut self, query: &ActiveQuery) -> Result<Vec<RunPlace>> {
        Ok(self.raw().active_run_places(query)?)
    }

    /// Returns how many runs were active at some instant of the query's window. The page of the query is
    /// ignored.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn count_active_runs(&mut self, query: &ActiveQuery) -> Result<u64> {
        Ok(self.raw().count_active_runs(query)?)
    }

    /// Compares every counter with the rows that it counts, and returns the differences. Reads all tasks.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn audit(&mut self) -> Result<Vec<Discrepancy>> {
        Ok(self.raw().audit()?)
    }
}
