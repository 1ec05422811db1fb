//! Queries about tasks, sensors, the feed and runs.

use crate::error::Result;
use crate::feed::{Consumer, TaskEvent};
use crate::id::{Holder, TaskKey};
use crate::lease::TaskId;
use crate::run::{ActiveQuery, RunKey, RunPlace, RunRecord};
use crate::sensor::SensorRecord;
use crate::store::{Discrepancy, ReadTx};
use crate::task::TaskRecord;
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns the tasks with these keys, or `None` for a key without a task.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn tasks(&mut self, keys: &[TaskKey]) -> Result<Vec<Option<TaskRecord>>> {
        Ok(self.raw().tasks(keys)?)
    }

    /// Returns the tasks with these numbers, or `None` for a number without a task.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn tasks_by_id(&mut self, ids: &[TaskId]) -> Result<Vec<Option<TaskRecord>>> {
        Ok(self.raw().tasks_by_id(ids)?)
    }

    /// Returns the disk space that the store's data uses: the name and the bytes of each part, largest first.
    ///
    /// On PostgreSQL, each table with its indexes is a part. On SQLite, the parts are the file's used pages,
    /// including those of other tables, and its free pages. The memory store has no parts.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn sizes(&mut self) -> Result<Vec<(String, u64)>> {
        Ok(self.raw().sizes()?)
    }

    /// Returns when the next lease expires, or `None` if there is no lease. A host that calls
    /// [`Tx::reap`](crate::store::Tx::reap) itself can wait until then.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.raw().next_expiry()?)
    }

    /// Returns at most `limit` tasks that this holder has leases for, by number, starting after `after`. Pass
    /// `None` for the first page, and the last task of a page for the next. A page with fewer than `limit`
    /// tasks is the last.
    ///
    /// A process that restarts under the same name finds what it held before and can continue.
    /// [`Keeper::keep`](crate::service::Keeper::keep) renews these leases. An expired lease is included until
    /// it is ended. Give each process its own name, because the leases of a live process with the same name
    /// are returned too.
    ///
    /// In memory and on SQLite, a call reads the leases of all holders after `after`, which are at most as
    /// many as there are slots. On PostgreSQL, it reads those of this holder. Call it at startup, not in a
    /// loop.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use stationmaster::id::Holder;
    /// use stationmaster::service::{Admitter, Keeper, Service};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = Arc::new(MemoryStore::new());
    /// let (at, me) = (|seconds: i64| Timestamp::from_micros(seconds * 1_000_000), Holder::new("worker-1")?);
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task)))?;
    /// Admitter::new(store.clone(), me.clone()).lease(Duration::from_secs(60)).tick(at(0))?;
    ///
    /// // The process ends, and starts again.
    /// let mut keeper = Keeper::new(store.clone(), Duration::from_secs(60));
    /// let mine = store.read(|tx| tx.leases_of(&me, None, 100))?;
    /// let kept: Vec<_> = mine.iter().map(|task| keeper.keep(task)).collect();
    /// keeper.tick(at(20))?;
    /// assert!(kept[0].holds(at(79)));
    /// assert!(store.read(|tx| tx.leases_of(&me, Some(mine[0].id), 100))?.is_empty());
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>> {
        Ok(self.raw().leases_of(holder, after, limit)?)
    }

    /// Returns the latest sensor of each of these tasks, waiting or ended, or `None` for a task without a
    /// sensor.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn sensors(&mut self, tasks: &[TaskKey]) -> Result<Vec<Option<SensorRecord>>> {
        Ok(self.raw().sensors(tasks)?)
    }

    /// Returns at most `limit` events of the feed after event `after`, in order. This is for hosts that keep
    /// their own cursor. Other hosts use the [`FeedReader`](crate::service::FeedReader), which also numbers
    /// events that transactions left without a number.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<TaskEvent>> {
        Ok(self.raw().feed(after, limit)?)
    }

    /// Returns the consumers of the feed, by name: how far each has read, when it was last seen, and what it
    /// lost.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn consumers(&mut self) -> Result<Vec<Consumer>> {
        Ok(self.raw().consumers()?)
    }

    /// Returns the runs with these keys, or `None` for a key without a run.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn runs(&mut self, keys: &[RunKey]) -> Result<Vec<Option<RunRecord>>> {
        Ok(self.raw().runs(keys)?)
    }

    /// Returns one page of the runs that were active at some instant in the query's window, in the query's
    /// order.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn active_runs(&mut self, query: &ActiveQuery) -> Result<Vec<RunRecord>> {
        Ok(self.raw().active_runs(query)?)
    }

    /// Returns the positions of the runs that [`Self::active_runs`] returns, in the same order. Without a
    /// filter, the records are not read.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn active_run_places(&mut self, query: &ActiveQuery) -> Result<Vec<RunPlace>> {
        Ok(self.raw().active_run_places(query)?)
    }

    /// Returns the number of runs that were active at some instant in the query's window. The query's page is
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
