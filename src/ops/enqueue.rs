//! Enqueueing tasks.

use crate::admission::Ageing;
use crate::error::{Invalid, Result};
use crate::store::{Inserted, Tx};
use crate::task::NewTask;
use crate::time::Timestamp;

impl Tx<'_> {
    /// Enqueues tasks. A task whose key already exists is left unchanged, so the call may be repeated after a
    /// crash.
    ///
    /// One call may name any number of tasks. Either all of them are enqueued or none. In memory and on SQLite
    /// other writers wait until the transaction ends. On PostgreSQL only those wait that enqueue the same keys,
    /// and the tasks are admitted after the commit. Split more than about 100,000 tasks into several
    /// transactions.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Invalid`] for a task that asks for something no store can give (see
    /// [`NewTask::check`]); then no task is enqueued. Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::{Inserted, MemoryStore};
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let first = store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)))?;
    /// let again = store.write(|tx| tx.enqueue(Timestamp::from_micros(9), std::slice::from_ref(&task)))?;
    /// assert!(matches!((first[0], again[0]), (Inserted::New(a), Inserted::Exists(b)) if a == b));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn enqueue(&mut self, now: impl Into<Timestamp>, tasks: &[NewTask]) -> Result<Vec<Inserted>> {
        self.enqueue_ageing(now, Ageing::default(), tasks)
    }
}

impl Tx<'_> {
    /// Enqueues tasks whose priority grows while they wait. Otherwise it works like
    /// [`enqueue`](crate::store::Tx::enqueue).
    ///
    /// The wait counts from the instant at which a task is first ready: that of enqueueing, or
    /// [`NewTask::not_before`]. It continues through retries. Tasks that were enqueued before keep their
    /// rank.
    ///
    /// # Errors
    ///
    /// The same as [`enqueue`](crate::store::Tx::enqueue).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::admission::Ageing;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let ageing = Ageing::Linear { period: Duration::from_secs(60) };
    /// let task = |name, priority| Ok::<_, stationmaster::Error>(
    ///     [NewTask::new(TaskKey::new("prod", "nightly", "r1", name)?).priority(priority)]
    /// );
    /// let store = MemoryStore::new();
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 1, Duration::from_secs(30));
    /// let admission = store.write(|tx| {
    ///     tx.enqueue_ageing(Timestamp::UNIX_EPOCH, ageing, &task("old", 0)?)?;
    ///     tx.enqueue_ageing(Timestamp::from_micros(120_000_000), ageing, &task("urgent", 1)?)?;
    ///     tx.admit(Timestamp::from_micros(120_000_000), &order)
    /// })?;
    /// assert_eq!(admission.granted[0].key.task.as_str(), "old", "two minutes of waiting are two points");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn enqueue_ageing(
        &mut self,
        now: impl Into<Timestamp>,
        ageing: Ageing,
        tasks: &[NewTask],
    ) -> Result<Vec<Inserted>> {
        let now = now.into();
        let check = |task: &NewTask| task.check_with(now, ageing);
        let rows = tasks.iter().map(check).collect::<Result<Vec<_>, Invalid>>()?;
        self.insert_tasks(&rows)
    }
}
