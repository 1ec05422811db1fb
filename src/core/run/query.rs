//! Queries for runs, and the order of their results.

use serde::{Deserialize, Serialize};

use super::record::{RunKey, RunRecord, RunStatus, StartMethod};
use crate::base::setters;
use crate::id::{Namespace, WorkflowId};
use crate::time::Timestamp;

/// The position of a run in a result: by start, then namespace, then id.
///
/// The next page continues after the position of the previous page's last run, even if that run no longer
/// exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunPlace {
    /// The run's start.
    pub start: Timestamp,
    /// The run.
    pub key: RunKey,
}

impl RunPlace {
    /// Creates the position of a run with this start and key.
    pub fn new(start: impl Into<Timestamp>, key: RunKey) -> Self {
        Self { start: start.into(), key }
    }
}

/// A query for the runs active in `[begin, end)`.
///
/// By default it includes all namespaces, statuses, workflows, start methods and users, and returns all runs
/// on one page.
///
/// # Examples
///
/// ```
/// use stationmaster::run::ActiveQuery;
/// use stationmaster::Timestamp;
/// let query = ActiveQuery::new(Timestamp::UNIX_EPOCH, Timestamp::from_micros(10))
///     .namespace("prod".try_into()?)
///     .limit(100);
/// assert!(!query.is_empty());
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActiveQuery {
    /// The tenants to query; if empty, all of them. Duplicates and unknown names are harmless.
    pub namespaces: Vec<Namespace>,
    /// The window's first instant.
    pub begin: Timestamp,
    /// The first instant after the window.
    pub end: Timestamp,
    /// The current statuses of the runs; if empty, any status.
    #[serde(default)]
    pub statuses: Vec<RunStatus>,
    /// The workflows that the runs execute. If empty, runs of any workflow and runs without a workflow.
    #[serde(default)]
    pub workflows: Vec<WorkflowId>,
    /// How the runs were started; if empty, any start method.
    #[serde(default)]
    pub methods: Vec<StartMethod>,
    /// The users on whose behalf the runs execute. If empty, runs of any user and runs without a user.
    #[serde(default)]
    pub users: Vec<String>,
    /// Only runs after this position. `None` starts at the first run.
    #[serde(default)]
    pub after: Option<RunPlace>,
    /// The most runs to return; `None` means no limit.
    #[serde(default)]
    pub limit: Option<usize>,
}

impl ActiveQuery {
    /// Creates a query for all namespaces.
    pub fn new(begin: impl Into<Timestamp>, end: impl Into<Timestamp>) -> Self {
        Self {
            namespaces: Vec::new(),
            begin: begin.into(),
            end: end.into(),
            statuses: Vec::new(),
            workflows: Vec::new(),
            methods: Vec::new(),
            users: Vec::new(),
            after: None,
            limit: None,
        }
    }

    setters! {
        /// Adds this namespace to the query.
        namespace(namespace: Namespace) { namespaces.push(namespace) }
        /// Adds this status to the query.
        status(status: RunStatus) { statuses.push(status) }
        /// Adds this workflow to the query.
        workflow(workflow: WorkflowId) { workflows.push(workflow) }
        /// Adds this start method to the query.
        method(method: StartMethod) { methods.push(method) }
        /// Adds this user to the query.
        user(user: impl Into<String>) { users.push(user.into()) }
        /// Limits the query to runs after this position: the next page.
        after: Some(RunPlace);
        /// Limits the query to this many runs: a page.
        limit: Some(usize);
    }

    /// Returns true if the window contains no instant.
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    /// Returns true if the query includes every status, workflow, start method and user.
    pub fn asks_for_any(&self) -> bool {
        self.statuses.is_empty()
            && self.workflows.is_empty()
            && self.methods.is_empty()
            && self.users.is_empty()
    }

    /// Returns true if the query includes runs of this status, workflow, start method and user.
    pub fn asks_for(
        &self,
        status: RunStatus,
        workflow: Option<&str>,
        method: StartMethod,
        user: Option<&str>,
    ) -> bool {
        let listed = |name: &str| self.workflows.iter().any(|workflow| workflow.as_str() == name);
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && (self.workflows.is_empty() || workflow.is_some_and(listed))
            && (self.methods.is_empty() || self.methods.contains(&method))
            && (self.users.is_empty() || user.is_some_and(|name| self.users.iter().any(|user| user == name)))
    }

    /// Returns true if the run is in the unpaged result: it matches the window, the namespaces and the other
    /// filters. [`Self::after`] and [`Self::limit`] are ignored.
    pub fn wants(&self, run: &RunRecord) -> bool {
        run.is_active(self.begin, self.end)
            && (self.namespaces.is_empty() || self.namespaces.contains(&run.key.namespace))
            && self.asks_for_run(run)
    }

    pub(crate) fn asks_for_run(&self, run: &RunRecord) -> bool {
        let workflow = run.workflow.as_ref().map(WorkflowId::as_str);
        self.asks_for(run.status, workflow, run.method, run.user.as_deref())
    }
}
