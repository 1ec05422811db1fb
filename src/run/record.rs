//! Run records and the question asked of them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::id::{IdError, Namespace, RunId, WorkflowId};
use crate::time;

/// Identifies a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunKey {
    /// The tenant.
    pub namespace: Namespace,
    /// The run, unique in its namespace.
    pub id: RunId,
}

impl RunKey {
    /// The key of a run.
    ///
    /// # Errors
    ///
    /// [`IdError`] if one of the names is refused.
    pub fn new(namespace: impl AsRef<str>, id: impl AsRef<str>) -> Result<Self, IdError> {
        Ok(Self { namespace: Namespace::new(namespace)?, id: RunId::new(id)? })
    }
}

/// What a run is doing, by the names of CDAP's run records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// Accepted, not begun.
    Pending,
    /// Being set up.
    Starting,
    /// At work.
    #[default]
    Running,
    /// Paused.
    Suspended,
    /// Coming out of a pause.
    Resuming,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Ended from outside.
    Killed,
    /// Never let in.
    Rejected,
}

/// Who started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StartMethod {
    /// A person.
    #[default]
    Manual,
    /// The calendar.
    Scheduled,
    /// Another run, or data.
    Triggered,
}

/// A run as it is stored.
///
/// # Examples
///
/// ```
/// use stationmaster::run::{RunKey, RunRecord, RunStatus};
/// use stationmaster::time::from_micros;
/// let run = RunRecord::open(RunKey::new("prod", "nightly-1")?, from_micros(0)).closed(from_micros(5), RunStatus::Completed);
/// assert!(run.is_active(from_micros(5), from_micros(6)), "the stop is inclusive");
/// assert!(!run.is_active(from_micros(6), from_micros(9)));
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// Its identity.
    pub key: RunKey,
    /// The workflow it is an execution of.
    pub workflow: Option<WorkflowId>,
    /// What it is doing.
    pub status: RunStatus,
    /// Who started it.
    pub method: StartMethod,
    /// On whose behalf.
    pub user: Option<String>,
    /// When it began to count as active.
    pub start: DateTime<Utc>,
    /// When it ended; none while it is open.
    pub stop: Option<DateTime<Utc>>,
    /// The host's own text.
    pub attributes: Option<String>,
}

impl RunRecord {
    /// A running run, started by a person at this instant.
    pub fn open(key: RunKey, start: DateTime<Utc>) -> Self {
        Self {
            key,
            workflow: None,
            status: RunStatus::Running,
            method: StartMethod::Manual,
            user: None,
            start: time::truncate(start),
            stop: None,
            attributes: None,
        }
    }

    /// The same run, ended.
    #[must_use]
    pub fn closed(mut self, stop: DateTime<Utc>, status: RunStatus) -> Self {
        self.stop = Some(time::truncate(stop));
        self.status = status;
        self
    }

    /// Sets the workflow.
    #[must_use]
    pub fn workflow(mut self, workflow: WorkflowId) -> Self {
        self.workflow = Some(workflow);
        self
    }

    /// Sets who started it.
    #[must_use]
    pub fn method(mut self, method: StartMethod) -> Self {
        self.method = method;
        self
    }

    /// Sets on whose behalf it runs.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the host's own text.
    #[must_use]
    pub fn attributes(mut self, attributes: impl Into<String>) -> Self {
        self.attributes = Some(attributes.into());
        self
    }

    /// The rule: `start < end && (stop is none || stop >= begin)`. A window with `begin >= end` is empty.
    pub fn is_active(&self, begin: DateTime<Utc>, end: DateTime<Utc>) -> bool {
        begin < end && self.start < end && self.stop.is_none_or(|stop| stop >= begin)
    }

    /// Refuses a stop before the start.
    ///
    /// # Errors
    ///
    /// [`Invalid::StopBeforeStart`].
    pub fn check(&self) -> Result<(), Invalid> {
        match self.stop {
            Some(stop) if stop < self.start => Err(Invalid::StopBeforeStart {
                id: self.key.id.to_string(),
                micros: time::micros(self.start).saturating_sub(time::micros(stop)),
            }),
            _ => Ok(()),
        }
    }
}

/// The end of an open run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunClose {
    /// The run.
    pub key: RunKey,
    /// When it ended. A stop before the run's start is stored as the start.
    pub stop: DateTime<Utc>,
    /// How.
    pub status: RunStatus,
}

impl RunClose {
    /// The run ended at this instant.
    pub fn new(key: RunKey, stop: DateTime<Utc>, status: RunStatus) -> Self {
        Self { key, stop: time::truncate(stop), status }
    }
}

/// Asks for the runs active in `[begin, end)`.
///
/// # Examples
///
/// ```
/// use stationmaster::run::ActiveQuery;
/// use stationmaster::time::from_micros;
/// let query = ActiveQuery::new(from_micros(0), from_micros(10)).namespace("prod".try_into()?);
/// assert!(!query.is_empty());
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActiveQuery {
    /// The tenants that are asked about; none named means all of them. Repetitions and unknown ones do no harm.
    pub namespaces: Vec<Namespace>,
    /// The window's first instant.
    pub begin: DateTime<Utc>,
    /// The first instant after the window.
    pub end: DateTime<Utc>,
}

impl ActiveQuery {
    /// Asks about all namespaces.
    pub fn new(begin: DateTime<Utc>, end: DateTime<Utc>) -> Self {
        Self { namespaces: Vec::new(), begin: time::truncate(begin), end: time::truncate(end) }
    }

    /// Asks about this namespace, besides those named before.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespaces.push(namespace);
        self
    }

    /// True if no instant lies in the window.
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }
}
