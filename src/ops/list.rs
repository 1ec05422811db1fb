//! Lists of tasks in pages, and counts of tasks by state.

use crate::core::task::attempt::is_of_latest_grants;
use crate::error::{Invalid, Result};
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::store::ReadTx;
use crate::store::contract::TaskWalk;
use crate::task::list::Cursor;
use crate::task::{PastAttempt, TaskCount, TaskPage, TaskQuery, TaskRecord};

/// The most tasks that [`ReadTx::count_tasks`] counts one by one.
const MOST_COUNTED: usize = 1_000_000;

impl ReadTx<'_> {
    /// Returns one page of the tasks that match the query. `docs/listing.md` describes their order, which
    /// queries read only what they return, and what is guaranteed if tasks change between two pages.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TaskQuery`] for a query that [`TaskQuery::check`] refuses, or whose
    /// [`after`](TaskQuery::after) is not from a page of the same query. Returns [`crate::Error::Store`] if
    /// the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::task::TaskQuery;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let tasks = ["a", "b", "c"].map(|name| NewTask::new(TaskKey::new("prod", "nightly", "r1", name).unwrap()));
    /// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks))?;
    ///
    /// let mut query = TaskQuery::waiting().queue("default".try_into()?).limit(2);
    /// let mut names = Vec::new();
    /// loop {
    ///     let page = store.read(|tx| tx.list_tasks(&query))?;
    ///     names.extend(page.tasks.into_iter().map(|task| task.key.task.to_string()));
    ///     let Some(next) = page.next else { break };
    ///     query = query.after(next);
    /// }
    /// assert_eq!(names, ["a", "b", "c"]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn list_tasks(&mut self, query: &TaskQuery) -> Result<TaskPage> {
        query.check()?;
        let Cursor { walk: first, mut place, .. } = Cursor::of(query)?;
        let mut tasks = Vec::new();
        for (at, walk) in query.walks().into_iter().enumerate().skip(first) {
            let step = TaskWalk::new(query, walk, place.as_ref(), query.limit - tasks.len());
            let walked = self.raw().walk_tasks(&step)?;
            // Below snapshot isolation a task may have changed since it was found.
            let found = self.raw().tasks_by_id(&walked.found)?.into_iter().flatten();
            tasks.extend(found.filter(|task| query.wants(task)));
            if walked.next.is_some() {
                let next = Cursor::new(query, at, walked.next);
                return Ok(TaskPage::new(tasks, Some(next.to_text())));
            }
            place = None;
        }
        Ok(TaskPage::new(tasks, None))
    }

    /// Returns the number of tasks in each state, in the order of
    /// [`TaskState::ALL`](crate::task::TaskState::ALL). Tasks that wait for slots are not counted one by one,
    /// because lanes have counters. Tasks that wait for a retry, and ended tasks, are counted up to `cap` (1
    /// to 1,000,000). Beyond it, [`TaskCount::is_at_least`] is true.
    ///
    /// The cost grows with the number of lanes, leases and sensors, and with `cap`.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Zero`] or [`Invalid::TaskQuery`] for a cap that is out of range. Returns
    /// [`crate::Error::Store`] if the store fails.
    pub fn count_tasks(&mut self, cap: usize) -> Result<Vec<TaskCount>> {
        let what = "the cap of a count of tasks";
        if cap == 0 {
            return Err(Invalid::Zero { what }.into());
        }
        if cap > MOST_COUNTED {
            return Err(Invalid::TaskQuery { why: "a count of tasks has a cap of 1 to 1000000" }.into());
        }
        Ok(self.raw().count_tasks(cap)?.by_state(cap as u64))
    }

    /// Returns the kept attempts of these tasks: who held each, when, and why it ended. Each task has at most
    /// 16, in order, from its latest 16 grants. The list of an unknown task is empty.
    ///
    /// [`NewTask::keep_attempts`](crate::NewTask::keep_attempts) determines which attempts are kept. By
    /// default these are the ones that ended without success. `docs/history.md` says what belongs in a run's
    /// record and what belongs here.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::{AdmitRequest, Finish};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let (now, key) = (Timestamp::UNIX_EPOCH, TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 1, Duration::from_secs(30)).started();
    /// store.write(|tx| tx.enqueue(now, &[NewTask::new(key.clone())]))?;
    /// let lease = store.write(|tx| tx.admit(now, &order))?.granted[0].lease_ref();
    /// store.write(|tx| tx.finish(now, &[Finish::failed(lease, "no route to host")]))?;
    ///
    /// let past = store.read(|tx| tx.attempts(std::slice::from_ref(&key)))?.remove(0);
    /// assert_eq!((past[0].attempt, past[0].became), (1, TaskState::Failed));
    /// assert!(past[0].message.as_ref().is_some_and(|why| why.starts_with("no route to host")));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn attempts(&mut self, keys: &[TaskKey]) -> Result<Vec<Vec<PastAttempt>>> {
        let tasks = self.raw().tasks(keys)?;
        let known: Vec<TaskId> = tasks.iter().flatten().map(|task| task.id).collect();
        let mut past = if known.is_empty() { Vec::new() } else { self.raw().attempts(&known)? }.into_iter();
        let mut of = |task: &TaskRecord| {
            let mut kept = past.next().unwrap_or_default();
            // Old rows are deleted only when the next one is written, and successful attempts may have
            // written none.
            kept.retain(|past| is_of_latest_grants(past.epoch, task.epoch));
            kept
        };
        Ok(tasks.iter().map(|task| task.as_ref().map(&mut of).unwrap_or_default()).collect())
    }
}
