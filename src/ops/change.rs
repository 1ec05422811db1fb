//! Changing and deleting tasks, and locking those that a query finds.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::leave;
use crate::admission::Ageing;
use crate::core::task::change::{Change, change, waits};
use crate::error::Result;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::store::Tx;
use crate::store::contract::{Held, Wait};
use crate::task::{NewTask, TaskPage, TaskQuery, TaskRecord, TaskState};
use crate::time::Timestamp;

/// The result of [`change`](crate::store::Tx::change) or [`delete`](crate::store::Tx::delete) for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Changed {
    /// It was changed or deleted.
    Done,
    /// It is in this state, so the call left it unchanged.
    NotWaiting(TaskState),
    /// Its sensor ended a moment ago, and pokers may not know that yet. It was not deleted: try again later.
    Busy,
    /// There is no such task.
    Unknown,
}

/// What was done about each task; `None` if the task changed anyway.
type Answers = Vec<Option<Changed>>;

impl Tx<'_> {
    /// Changes waiting tasks. `edit` receives each task as it would be enqueued now, and may change any field
    /// except the key: priority, queue, pools, limit keys, the earliest start, date, policies, payload.
    ///
    /// A task waits in state `Scheduled` or `UpForRetry`. A task in any other state is left unchanged, and
    /// the result contains the state. For example, a task that was granted first returns
    /// [`Changed::NotWaiting`] with `Queued`. A grant and a change of the same task see each other, whichever
    /// comes first. Sensors are not changed, nor are tasks that continue in slots that they kept.
    /// [`cancel`](Self::cancel) such a task and enqueue another.
    ///
    /// [`NewTask::not_before`] is the task's due instant. `None`, or an instant in the past, makes the task
    /// ready, even if it waits for a retry. Attempts, lost leases and messages are kept. Use
    /// [`change_ageing`](Self::change_ageing) for a task whose priority grows while it waits.
    ///
    /// In a loop over pages, an edit relative to the old value or to now (lower the priority by 10, start an
    /// hour from now) can move a task past the cursor, and the loop finds it again. Set a value that was
    /// fixed before the loop, or name a namespace in the query: such a list is in key order, which no edit
    /// changes. A relative edit is also applied twice if it is repeated after a commit of unknown outcome.
    ///
    /// `edit` may be called more than once for a task, so it should have no side effects. A key that is named
    /// twice is changed once, and gets the same result both times.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::KeyChanged`](crate::error::Invalid::KeyChanged) for an edit of the key. Returns the
    /// errors of [`enqueue`](Self::enqueue) for a task that requests something no store can provide. Returns
    /// [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::ops::Changed;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::task::TaskQuery;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let now = Timestamp::UNIX_EPOCH;
    /// let tasks = ["a", "b"].map(|name| NewTask::new(TaskKey::new("prod", "nightly", "r1", name).unwrap()));
    /// store.write(|tx| tx.enqueue(now, &tasks))?;
    ///
    /// // By key.
    /// let first = std::slice::from_ref(&tasks[0].key);
    /// let changed = store.write(|tx| tx.change(now, first, |task| task.priority += 10))?;
    /// assert_eq!(changed, [Changed::Done]);
    ///
    /// // By query: what waits for one queue is to wait for another.
    /// let (slow, fast) = ("default".try_into()?, "fast".try_into()?);
    /// let query = TaskQuery::waiting().queue(slow).limit(500);
    /// let moved = store.write(|tx| {
    ///     let page = tx.hold_tasks(&query)?;
    ///     tx.change(now, &page.keys(), |task| task.queue = Clone::clone(&fast))
    /// })?;
    /// assert_eq!(moved, [Changed::Done; 2]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn change(
        &mut self,
        now: impl Into<Timestamp>,
        keys: &[TaskKey],
        edit: impl FnMut(&mut NewTask),
    ) -> Result<Vec<Changed>> {
        self.change_ageing(now, Ageing::default(), keys, edit)
    }

    /// Works like [`change`](Self::change), for tasks enqueued by [`enqueue_ageing`](Self::enqueue_ageing)
    /// with this policy. A new priority is a head start under that policy, and the time waited so far still
    /// counts.
    ///
    /// # Errors
    ///
    /// The same as [`change`](Self::change).
    pub fn change_ageing(
        &mut self,
        now: impl Into<Timestamp>,
        ageing: Ageing,
        keys: &[TaskKey],
        mut edit: impl FnMut(&mut NewTask),
    ) -> Result<Vec<Changed>> {
        let now = now.into();
        self.on_waiting(keys, &mut |tx, held| {
            let changes: Vec<Option<Change>> = held
                .iter()
                .map(|task| match waits(task) {
                    true => Ok(change(task, now, ageing, &mut edit)?),
                    false => Ok(None),
                })
                .collect::<Result<_>>()?;
            let asked: Vec<Change> = changes.iter().flatten().cloned().collect();
            let mut changed =
                if asked.is_empty() { Vec::new() } else { tx.change_tasks(&asked)? }.into_iter();
            let answer = |(task, change): (&TaskRecord, Option<Change>)| match change {
                _ if !waits(task) => Some(Changed::NotWaiting(task.state)),
                // The task is already as requested.
                None => Some(Changed::Done),
                Some(_) => changed.next().filter(|changed| *changed).map(|_| Changed::Done),
            };
            Ok(held.iter().zip(changes).map(answer).collect())
        })
    }

    /// Deletes tasks that wait or have ended, with all their rows. Tasks with a lease, sensors, and tasks
    /// that continue in slots that they kept are left unchanged, and the result contains their state.
    /// [`cancel`](Self::cancel) them first.
    ///
    /// A task whose sensor ended a moment ago may stay ([`Changed::Busy`]) until pokers have had time to see
    /// that. The key of a deleted task can be enqueued again, which creates another task. Runs that record
    /// its attempts stay.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::ops::{Changed, Mark};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::task::TaskQuery;
    /// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let (now, key) = (Timestamp::UNIX_EPOCH, TaskKey::new("prod", "nightly", "r1", "load")?);
    /// store.write(|tx| {
    ///     tx.enqueue(now, &[NewTask::new(key.clone())])?;
    ///     tx.mark(now, &[Mark::new(key.clone(), TaskState::Failed, "bad input")])
    /// })?;
    /// // Discards what failed.
    /// let query = TaskQuery::new([TaskState::Failed]).limit(500);
    /// let gone = store.write(|tx| {
    ///     let page = tx.hold_tasks(&query)?;
    ///     tx.delete(&page.keys())
    /// })?;
    /// assert_eq!(gone, [Changed::Done]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn delete(&mut self, keys: &[TaskKey]) -> Result<Vec<Changed>> {
        self.on_waiting(keys, &mut |tx, held| {
            let may_go = |task: &TaskRecord| waits(task) || task.state.is_end();
            let asked: Vec<_> =
                held.iter().filter(|task| may_go(task)).map(|task| (task.lease_ref(), task.state)).collect();
            let mut gone = if asked.is_empty() { Vec::new() } else { tx.delete_tasks(&asked)? }.into_iter();
            let mut answer = |task: &TaskRecord| match may_go(task) {
                false => Changed::NotWaiting(task.state),
                // The task is locked, so nothing but a recent sensor prevents its deletion.
                true => gone.next().filter(|gone| *gone).map_or(Changed::Busy, |_| Changed::Done),
            };
            Ok(held.iter().map(|task| Some(answer(task))).collect())
        })
    }

    /// Returns one page of the tasks that match the query, like
    /// [`list_tasks`](crate::store::ReadTx::list_tasks), and locks them: until the transaction ends, no other
    /// transaction changes them. So a verb called with their [keys](TaskPage::keys) finds each task still
    /// matching the query.
    ///
    /// Use it to change, cancel, clear, mark or delete tasks in bulk, one page per transaction. The call
    /// waits for tasks that another transaction holds, and leaves out those that no longer match afterwards.
    ///
    /// # Errors
    ///
    /// The same as [`list_tasks`](crate::store::ReadTx::list_tasks).
    pub fn hold_tasks(&mut self, query: &TaskQuery) -> Result<TaskPage> {
        self.may_write()?;
        let mut page = self.list_tasks(query)?;
        let ids: Vec<TaskId> = page.tasks.iter().map(|task| task.id).collect();
        let held = if ids.is_empty() { Vec::new() } else { self.raw().hold_tasks(&ids, Wait::ForOthers)? };
        let held = held.into_iter().filter_map(|held| match held {
            Held::Task(task) if query.wants(&task) => Some(*task),
            _ => None,
        });
        page.tasks = held.collect();
        Ok(page)
    }

    /// Locks the tasks with these keys, calls `work` once for each, and returns a result for each key. If
    /// `work` returns `None` for a task, because it changed anyway, `work` is called again for that task.
    fn on_waiting(
        &mut self,
        keys: &[TaskKey],
        work: &mut dyn FnMut(&mut Self, &[TaskRecord]) -> Result<Answers>,
    ) -> Result<Vec<Changed>> {
        self.whole(|tx| {
            let ids: Vec<Option<TaskId>> =
                tx.raw().tasks(keys)?.into_iter().map(|task| task.map(|task| task.id)).collect();
            let mut seen = HashSet::new();
            let open: Vec<TaskId> = ids.iter().flatten().copied().filter(|id| seen.insert(*id)).collect();
            let mut answers: HashMap<TaskId, Changed> = HashMap::with_capacity(open.len());
            leave::settle((0..open.len()).collect(), |left| {
                let asked: Vec<TaskId> = left.iter().map(|at| open[*at]).collect();
                let held = tx.raw().hold_tasks(&asked, Wait::ForOthers)?;
                let (mut tasks, mut places) = (Vec::new(), Vec::new());
                for (at, held) in left.iter().zip(held) {
                    if let Held::Task(task) = held {
                        tasks.push(*task);
                        places.push(*at);
                    }
                }
                let mut missed = Vec::new();
                for (at, answer) in places.into_iter().zip(work(tx, &tasks)?) {
                    match answer {
                        Some(answer) => drop(answers.insert(open[at], answer)),
                        None => missed.push(at),
                    }
                }
                Ok(missed)
            })?;
            let answer = |id: &Option<TaskId>| id.and_then(|id| answers.get(&id).copied());
            Ok(ids.iter().map(|id| answer(id).unwrap_or(Changed::Unknown)).collect())
        })
    }
}
