//! Changing and deleting tasks, and holding those that a query finds.

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

/// What [`change`](crate::store::Tx::change) or [`delete`](crate::store::Tx::delete) did about one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Changed {
    /// It is changed, or deleted.
    Done,
    /// It is in this state, so the call left it unchanged.
    NotWaiting(TaskState),
    /// Its sensor ended a moment ago, and pokers cannot know that yet. It was not deleted: try again later.
    Busy,
    /// There is no such task.
    Unknown,
}

/// What was done about each task; `None` if the task changed anyway.
type Answers = Vec<Option<Changed>>;

impl Tx<'_> {
    /// Changes what waiting tasks ask for. `edit` gets each task as it would be enqueued now, and changes any of its
    /// fields: priority, queue, pools, limit keys, the instant before which it does not start, date, policies, payload.
    ///
    /// A task waits in state `Scheduled` or `UpForRetry`. A task in any other state is left unchanged, and the result
    /// names the state: a task that was granted first, for example, is [`Changed::NotWaiting`] with `Queued`. Whichever
    /// of a grant and a change comes first, the other one sees it. Sensors are not changed, nor are tasks that continue
    /// in slots that they kept: [`cancel`](Self::cancel) such a task, and enqueue another.
    ///
    /// [`NewTask::not_before`] is the task's due instant. `None`, or an instant that has passed, makes the task ready,
    /// even if it waits to be tried again. Attempts, lost leases and messages stay. Use
    /// [`change_ageing`](Self::change_ageing) for a task whose priority grows while it waits.
    ///
    /// In a loop over pages, an edit that depends on the old value (a priority that falls by 10, one hour from now) can
    /// move a task past the cursor, so that the loop finds it again. Set a value that is fixed before the loop, or name
    /// a namespace in the query: that list is in the order of keys, which no edit changes. Such an edit is also applied
    /// twice if it is repeated after a commit of unknown outcome.
    ///
    /// `edit` may be called more than once for a task; its side effects are the host's concern. A key named
    /// twice is changed once, and has the same result both times.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::KeyChanged`](crate::error::Invalid::KeyChanged) for an edit of the key. Returns the
    /// errors of [`enqueue`](Self::enqueue) for a task that asks for something no store can give. Returns
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

    /// Works like [`change`](Self::change), for tasks that were enqueued by
    /// [`enqueue_ageing`](Self::enqueue_ageing) with this policy: a priority that changes is a head start under
    /// that policy, and the wait until now still counts.
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
                // It is already as requested.
                None => Some(Changed::Done),
                Some(_) => changed.next().filter(|changed| *changed).map(|_| Changed::Done),
            };
            Ok(held.iter().zip(changes).map(answer).collect())
        })
    }

    /// Deletes tasks that wait or have ended, with all their rows. Tasks with a lease, sensors, and tasks that continue
    /// in slots that they kept are left unchanged, and the result names their state: [`cancel`](Self::cancel) them
    /// first.
    ///
    /// A task whose sensor ended a moment ago may stay ([`Changed::Busy`]) until pokers can know of it. The key of a
    /// deleted task can be enqueued again, which creates another task. Runs that record its attempts stay.
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
                // It is locked, so nothing else prevents its deletion.
                true => gone.next().filter(|gone| *gone).map_or(Changed::Busy, |_| Changed::Done),
            };
            Ok(held.iter().map(|task| Some(answer(task))).collect())
        })
    }

    /// Returns one page of the tasks that the query asks for, as [`list_tasks`](crate::store::ReadTx::list_tasks)
    /// does, and locks them: until the transaction ends, no one else changes them. So a verb that is given their
    /// [keys](TaskPage::keys) finds each task still matching the query.
    ///
    /// Use it to change, cancel, clear, mark or delete tasks in bulk: one page per transaction. The call waits for
    /// tasks that another transaction holds, and leaves out those that are then no longer in the list.
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

    /// Does `work` on the tasks with these keys, each once and locked, and returns a result for each key. If
    /// `work` returns `None` for a task, because it changed anyway, it gets that task again.
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
