//! Queries for lists of tasks.

use serde::{Deserialize, Serialize};

use super::walk::Stage;
use crate::admission::LaneKey;
use crate::base::setters;
use crate::error::Invalid;
use crate::id::{Holder, LimitKey, Namespace, PoolName, QueueName, RunId, WorkflowId};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// A query for a list of tasks: states, and filters that must all match.
///
/// `docs/listing.md` describes the order of the tasks, the cost of a query, and the guarantees while tasks
/// change between pages.
///
/// The default is 100 tasks a page, from the first page. A workflow can be set only with a namespace, and a
/// run only with a workflow.
///
/// # Examples
///
/// ```
/// use stationmaster::task::{TaskQuery, TaskState};
/// use stationmaster::Timestamp;
///
/// let waiting = TaskQuery::waiting().queue("gpu".try_into()?).limit(20);
/// let failed = TaskQuery::new([TaskState::Failed]).ended_since(Timestamp::UNIX_EPOCH);
/// let running = TaskQuery::leased().holder("worker-1".try_into()?);
/// # for query in [&waiting, &failed, &running] { query.check()?; }
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskQuery {
    /// The states, at least one. Repetitions are ignored.
    pub states: Vec<TaskState>,
    /// The tenant; `None` matches any.
    #[serde(default)]
    pub namespace: Option<Namespace>,
    /// The workflow in the namespace; `None` matches any.
    #[serde(default)]
    pub workflow: Option<WorkflowId>,
    /// The run of the workflow; `None` matches any.
    #[serde(default)]
    pub run: Option<RunId>,
    /// The queue; `None` matches any.
    #[serde(default)]
    pub queue: Option<QueueName>,
    /// The pool; `None` matches any.
    #[serde(default)]
    pub pool: Option<PoolName>,
    /// A limit key that the tasks carry; `None` also matches tasks without keys.
    #[serde(default)]
    pub limit_key: Option<LimitKey>,
    /// The holder of the lease; `None` also matches tasks without a lease.
    #[serde(default)]
    pub holder: Option<Holder>,
    /// Only tasks that wait for this instant or a later one.
    #[serde(default)]
    pub due_since: Option<Timestamp>,
    /// Only tasks that wait for an instant before this one.
    #[serde(default)]
    pub due_before: Option<Timestamp>,
    /// Only tasks that ended at this instant or later.
    #[serde(default)]
    pub ended_since: Option<Timestamp>,
    /// The most tasks on a page, 1 to [`Self::MOST`].
    #[serde(default = "TaskQuery::default_limit")]
    pub limit: usize,
    /// Continues after the page that returned this as [`TaskPage::next`](crate::task::TaskPage::next).
    #[serde(default)]
    pub after: Option<String>,
}

impl TaskQuery {
    /// The highest limit of tasks on a page.
    pub const MOST: usize = 10_000;

    /// The most tasks that a page reads without returning them. It then ends early.
    pub const MOST_PASSED: usize = 10_000;

    /// Creates a query for tasks in these states.
    pub fn new(states: impl IntoIterator<Item = TaskState>) -> Self {
        Self {
            states: states.into_iter().collect(),
            namespace: None,
            workflow: None,
            run: None,
            queue: None,
            pool: None,
            limit_key: None,
            holder: None,
            due_since: None,
            due_before: None,
            ended_since: None,
            limit: Self::default_limit(),
            after: None,
        }
    }

    /// Creates a query for tasks in any state.
    pub fn all() -> Self {
        Self::new(TaskState::ALL)
    }

    /// Creates a query for tasks that wait for slots or for an instant.
    pub fn waiting() -> Self {
        Self::of(Stage::Waiting)
    }

    /// Creates a query for tasks with a lease.
    pub fn leased() -> Self {
        Self::of(Stage::Leased)
    }

    /// Creates a query for tasks that wait as sensors.
    pub fn sensing() -> Self {
        Self::of(Stage::Sensing)
    }

    /// Creates a query for tasks that have ended, in any end state.
    pub fn ended() -> Self {
        Self::of(Stage::Ended)
    }

    fn of(stage: Stage) -> Self {
        Self::new(stage.states())
    }

    fn default_limit() -> usize {
        100
    }

    setters! {
        /// Sets the tenant.
        namespace: Some(Namespace);
        /// Sets the workflow; a namespace must be set as well.
        workflow: Some(WorkflowId);
        /// Sets the run; a workflow must be set as well.
        run: Some(RunId);
        /// Sets the queue.
        queue: Some(QueueName);
        /// Sets the pool.
        pool: Some(PoolName);
        /// Sets the limit key that the tasks carry.
        limit_key: Some(LimitKey);
        /// Sets the holder; only leased tasks match.
        holder: Some(Holder);
        /// Sets the earliest due instant; only tasks that wait for an instant match.
        due_since(at: impl Into<Timestamp>) { due_since = Some(at.into()) }
        /// Sets the instant before which the tasks are due; only tasks that wait for an instant match.
        due_before(at: impl Into<Timestamp>) { due_before = Some(at.into()) }
        /// Sets the earliest end; only ended tasks match.
        ended_since(at: impl Into<Timestamp>) { ended_since = Some(at.into()) }
        /// Sets the most tasks on a page, 1 to [`Self::MOST`].
        limit: usize;
        /// Continues after the page that returned this as [`TaskPage::next`](crate::task::TaskPage::next).
        after(next: impl Into<String>) { after = Some(next.into()) }
    }

    /// Returns true if the task's state and every filter match. [`Self::limit`] and [`Self::after`] are
    /// ignored.
    pub fn wants(&self, task: &TaskRecord) -> bool {
        fn is<T: PartialEq>(asked: Option<&T>, has: &T) -> bool {
            asked.is_none_or(|asked| asked == has)
        }
        let holder = task.lease.as_ref().map(|lease| &lease.holder);
        let has_ended_since =
            |since: Timestamp| task.state.is_end() && task.ended_at.is_some_and(|at| at >= since);
        self.states.contains(&task.state)
            && is(self.namespace.as_ref(), &task.key.namespace)
            && is(self.workflow.as_ref(), &task.key.workflow)
            && is(self.run.as_ref(), &task.key.run)
            && self.wants_lane(&task.lane)
            && self.holder.as_ref().is_none_or(|asked| holder == Some(asked))
            && self.due_since.is_none_or(|since| task.due.is_some_and(|due| due >= since))
            && self.due_before.is_none_or(|before| task.due.is_some_and(|due| due < before))
            && self.ended_since.is_none_or(has_ended_since)
    }

    /// Returns true if the lane matches the query's queue, pool and limit key.
    pub(crate) fn wants_lane(&self, lane: &LaneKey) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == lane.queue)
            && self.pool.as_ref().is_none_or(|asked| lane.pools().any(|(pool, _)| pool == asked))
            && self.limit_key.as_ref().is_none_or(|key| lane.limits.contains(key))
    }

    /// Returns true if the query names a queue, a pool or a limit key.
    pub(crate) fn asks_for_lanes(&self) -> bool {
        self.queue.is_some() || self.pool.is_some() || self.limit_key.is_some()
    }

    /// Checks the query, except [`Self::after`].
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TaskQuery`] if no state is given, if no task in these states can match the filters,
    /// if a workflow has no namespace or a run has no workflow, or if the limit is out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        let refuse = |why| Err(Invalid::TaskQuery { why });
        if self.states.is_empty() {
            return refuse("a query for tasks names no state: name one, or ask for `all`");
        }
        if self.workflow.is_some() && self.namespace.is_none() {
            return refuse("a query for tasks of a workflow names no namespace: name it, too");
        }
        if self.run.is_some() && self.workflow.is_none() {
            return refuse("a query for tasks of a run names no workflow: name it, too");
        }
        if self.limit == 0 || self.limit > Self::MOST {
            return refuse("a page of tasks has a limit of 1 to 10000");
        }
        if self.possible().next().is_none() {
            return refuse(
                "no task in these states matches: only leased ones have a holder, waiting ones are due, and ended ones \
                 ended",
            );
        }
        Ok(())
    }

    /// Returns the states that the filters allow, in the order of [`TaskState::ALL`].
    pub(crate) fn possible(&self) -> impl Iterator<Item = TaskState> {
        let is_due = self.due_since.is_some() || self.due_before.is_some();
        TaskState::ALL.into_iter().filter(move |state| {
            let stage = Stage::of(*state);
            self.states.contains(state)
                && (self.holder.is_none() || stage == Stage::Leased)
                && (!is_due || stage == Stage::Waiting)
                && (self.ended_since.is_none() || stage == Stage::Ended)
        })
    }
}
