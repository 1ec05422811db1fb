//! The question asked of runs, and the order of its answer.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::record::{RunKey, RunRecord, RunStatus};
use crate::base::setters;
use crate::id::{Namespace, WorkflowId};
use crate::time;

/// Where a run stands in an answer: by start, then namespace, then id.
///
/// The place of the last run of a page is where the next page goes on, whether that run is still there or
/// not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunPlace {
    /// The run's start.
    pub start: DateTime<Utc>,
    /// The run.
    pub key: RunKey,
}

impl RunPlace {
    /// The place of a run with this start and key.
    pub fn new(start: DateTime<Utc>, key: RunKey) -> Self {
        Self { start: time::truncate(start), key }
    }
}

/// Asks for the runs active in `[begin, end)`.
///
/// Default: all namespaces, all statuses, all workflows, from the first run, all at once.
///
/// # Examples
///
/// ```
/// use stationmaster::run::ActiveQuery;
/// use stationmaster::time::from_micros;
/// let query = ActiveQuery::new(from_micros(0), from_micros(10)).namespace("prod".try_into()?).limit(100);
/// assert!(!query.is_empty());
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActiveQuery {
    /// The tenants that are asked about; none named means all of them. Repetitions and unknown ones do no
    /// harm.
    pub namespaces: Vec<Namespace>,
    /// The window's first instant.
    pub begin: DateTime<Utc>,
    /// The first instant after the window.
    pub end: DateTime<Utc>,
    /// What the runs are doing now; none named means anything.
    #[serde(default)]
    pub statuses: Vec<RunStatus>,
    /// What they are executions of; none named means anything, and nothing.
    #[serde(default)]
    pub workflows: Vec<WorkflowId>,
    /// Only runs that stand after this place.
    #[serde(default)]
    pub after: Option<RunPlace>,
    /// The most runs that are answered; none means all.
    #[serde(default)]
    pub limit: Option<usize>,
}

impl ActiveQuery {
    /// Asks about all namespaces.
    pub fn new(begin: DateTime<Utc>, end: DateTime<Utc>) -> Self {
        Self {
            namespaces: Vec::new(),
            begin: time::truncate(begin),
            end: time::truncate(end),
            statuses: Vec::new(),
            workflows: Vec::new(),
            after: None,
            limit: None,
        }
    }

    setters! {
        /// Asks about this namespace, besides those named before.
        namespace(namespace: Namespace) { namespaces.push(namespace) }
        /// Asks for runs of this status, besides those named before.
        status(status: RunStatus) { statuses.push(status) }
        /// Asks for runs of this workflow, besides those named before.
        workflow(workflow: WorkflowId) { workflows.push(workflow) }
        /// Asks only for runs that stand after this place: the next page.
        after: Some(RunPlace);
        /// Asks for at most this many runs: a page.
        limit: Some(usize);
    }

    /// True if no instant lies in the window.
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    /// True if it asks for every status and workflow.
    pub fn asks_for_any(&self) -> bool {
        self.statuses.is_empty() && self.workflows.is_empty()
    }

    /// True if a run of this status and workflow is asked for.
    pub fn asks_for(&self, status: RunStatus, workflow: Option<&str>) -> bool {
        let listed = |name: &str| self.workflows.iter().any(|workflow| workflow.as_str() == name);
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && (self.workflows.is_empty() || workflow.is_some_and(listed))
    }

    /// True if the run is in the answer when all of it is asked for at once: by the rule, its namespace,
    /// status and workflow. [`Self::after`] and [`Self::limit`] are not looked at.
    pub fn wants(&self, run: &RunRecord) -> bool {
        run.is_active(self.begin, self.end)
            && (self.namespaces.is_empty() || self.namespaces.contains(&run.key.namespace))
            && self.asks_for(run.status, run.workflow.as_ref().map(WorkflowId::as_str))
    }

    /// The same question with every instant truncated to the microsecond, as stores compare them.
    #[must_use]
    pub fn truncated(&self) -> Self {
        let mut query = self.clone();
        (query.begin, query.end) = (time::truncate(query.begin), time::truncate(query.end));
        if let Some(after) = &mut query.after {
            after.start = time::truncate(after.start);
        }
        query
    }
}
