//! Enqueueing tasks.

use std::collections::HashSet;

use crate::admission::Ageing;
use crate::core::admission::cap::{self, CapUse};
use crate::error::{Invalid, Result};
use crate::id::TaskKey;
use crate::store::{Inserted, Tx};
use crate::task::{NewTask, TaskInsert};
use crate::time::Timestamp;

impl Tx<'_> {
    /// Enqueues tasks. A task whose key already exists is left unchanged, so the call may be repeated after a
    /// crash.
    ///
    /// A call may name any number of tasks. Its transaction enqueues either all the tasks that it accepted or
    /// none. In memory and on SQLite, other writers wait until the transaction ends. On PostgreSQL, only
    /// enqueues of the same keys or under the same strict cap wait. The tasks can be admitted after the
    /// commit. Split more than about 100,000 tasks into several transactions.
    ///
    /// A task is [refused](Inserted::Refused) if its queue, or one of its keys, already has as many waiting
    /// tasks as a [cap](crate::admission::WaitingCap) allows. The tasks are checked in the order of the call,
    /// and each accepted task counts for those after it. A task whose key exists is neither counted nor
    /// refused. A call without capped tasks has no extra cost. Other calls count the waiting tasks once, at a
    /// cost that grows with the number of lanes, leases and sensors.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Invalid`] for a task that requests something no store can provide (see
    /// [`NewTask::check`]). No task is then enqueued. Returns [`crate::Error::Store`] if the store fails.
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
    /// assert!(matches!((&first[0], &again[0]), (Inserted::New(a), Inserted::Exists(b)) if a == b));
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
    /// The wait counts from the instant at which a task is first ready: when it is enqueued, or
    /// [`NewTask::not_before`]. It continues through retries. Tasks that were enqueued earlier keep their
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
        match self.insert_uncapped(&rows)? {
            Some(inserted) => Ok(inserted),
            None => self.whole(|tx| tx.insert_capped(&rows)),
        }
    }

    fn insert_capped(&mut self, tasks: &[TaskInsert]) -> Result<Vec<Inserted>> {
        let caps = self.raw().hold_caps(tasks)?;
        let needs: Vec<_> = tasks.iter().map(|task| (&task.key, &*task.lane)).collect();
        let mut refused = cap::refusals(caps.clone(), &needs, |_| false);
        // Existing keys are not counted, so there is no need to look them up if there is room for all.
        if refused.iter().any(Option::is_some) {
            let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
            let known = self.raw().tasks(&keys)?;
            let known: HashSet<&TaskKey> = known.iter().flatten().map(|task| &task.key).collect();
            refused = cap::refusals(caps, &needs, |key| known.contains(key));
        }
        let accepted = tasks.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let accepted: Vec<TaskInsert> = accepted.map(|(task, _)| task.clone()).collect();
        let mut inserted = self.insert_tasks(&accepted)?.into_iter();
        let answer = |refused: Option<CapUse>| match refused {
            Some(CapUse { subject, cap, waiting }) => {
                Some(Inserted::Refused { subject, waiting, most: cap.most })
            }
            None => inserted.next(),
        };
        Ok(refused.into_iter().filter_map(answer).collect())
    }
}
