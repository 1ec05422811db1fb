//! Run records, and how they change.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::query::RunPlace;
use crate::base::setters;
use crate::error::Invalid;
use crate::id::{Namespace, RunId, WorkflowId};
use crate::time::Timestamp;

/// A half-open span of time in which a run was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Suspension {
    /// Its first instant.
    pub from: Timestamp,
    /// The first instant after it. `None` while the suspension lasts, or if it lasted until the run stopped.
    pub to: Option<Timestamp>,
}

impl Suspension {
    /// Creates a suspension from one instant to another.
    pub fn new(from: impl Into<Timestamp>, to: Option<Timestamp>) -> Self {
        Self { from: from.into(), to }
    }
}

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
    /// Creates the key of a run.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Invalid`](crate::Error::Invalid) if one of the names is refused.
    pub fn new(namespace: impl AsRef<str>, id: impl AsRef<str>) -> crate::Result<Self> {
        Ok(Self { namespace: Namespace::new(namespace)?, id: RunId::new(id)? })
    }
}

/// What a run is doing, under the names of CDAP's run records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// Accepted but not begun.
    Pending,
    /// Being set up.
    Starting,
    /// At work.
    #[default]
    Running,
    /// Paused.
    Suspended,
    /// Resuming after a pause.
    Resuming,
    /// Ended successfully.
    Completed,
    /// Ended with a failure.
    Failed,
    /// Ended from outside.
    Killed,
    /// Never admitted.
    Rejected,
}

impl RunStatus {
    /// Returns the name used in JSON, in logs and as a metrics label.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::run::RunStatus;
    /// assert_eq!(RunStatus::Completed.to_string(), "completed");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
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

/// A run as stored.
///
/// # Examples
///
/// ```
/// use stationmaster::run::{RunKey, RunRecord, RunStatus};
/// use stationmaster::Timestamp;
/// let run = RunRecord::open(RunKey::new("prod", "nightly-1")?, Timestamp::UNIX_EPOCH)
///     .closed(Timestamp::from_micros(5), RunStatus::Completed);
/// assert!(run.is_active(Timestamp::from_micros(5), Timestamp::from_micros(6)), "the stop is inclusive");
/// assert!(!run.is_active(Timestamp::from_micros(6), Timestamp::from_micros(9)));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// Its identity.
    pub key: RunKey,
    /// The workflow that it executes.
    pub workflow: Option<WorkflowId>,
    /// What it is doing.
    pub status: RunStatus,
    /// Who started it.
    pub method: StartMethod,
    /// The user on whose behalf it runs.
    pub user: Option<String>,
    /// When it began to count as active.
    pub start: Timestamp,
    /// Since when it has been at work. `None` means since its start; if it is pending, starting or rejected,
    /// `None` means not yet.
    #[serde(default)]
    pub running: Option<Timestamp>,
    /// When it ended; `None` while it is open.
    pub stop: Option<Timestamp>,
    /// Its last heartbeat. A run without one is not watched for silence; see
    /// [`RunTx::silent_runs`](crate::store::contract::RunTx::silent_runs).
    #[serde(default)]
    pub heartbeat: Option<Timestamp>,
    /// When it was suspended, in chronological order. A suspended run counts as active, but not as at work.
    #[serde(default)]
    pub suspended: Vec<Suspension>,
    /// How many nodes it has, keyed by the instant from which it has them. Before the first of these instants
    /// it has one node, as does a run without any entries.
    #[serde(default)]
    pub nodes: BTreeMap<Timestamp, u32>,
    /// The host's own text, by convention a JSON object. It is kept byte for byte.
    pub attributes: Option<String>,
}

impl RunRecord {
    /// Creates a running run, started by a person at this instant.
    pub fn open(key: RunKey, start: impl Into<Timestamp>) -> Self {
        Self {
            key,
            workflow: None,
            status: RunStatus::Running,
            method: StartMethod::Manual,
            user: None,
            start: start.into(),
            running: None,
            stop: None,
            heartbeat: None,
            suspended: Vec::new(),
            nodes: BTreeMap::new(),
            attributes: None,
        }
    }

    setters! {
        /// Sets its status.
        status: RunStatus;
        /// Sets the instant since which it has been at work.
        running(since: impl Into<Timestamp>) { running = Some(since.into()) }
        /// Records a heartbeat at this instant. The run is watched from now on.
        heartbeat(at: impl Into<Timestamp>) { heartbeat = Some(at.into()) }
    }

    /// Suspends the run from this instant on. Does nothing if it is already suspended.
    #[must_use]
    pub fn suspend(mut self, at: impl Into<Timestamp>) -> Self {
        self.status = RunStatus::Suspended;
        if self.suspended.last().is_none_or(|last| last.to.is_some()) {
            self.suspended.push(Suspension::new(at, None));
        }
        self
    }

    /// Resumes the run from this instant on. If it is watched, this counts as a heartbeat.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::run::{RunKey, RunRecord, RunStatus};
    /// use stationmaster::Timestamp;
    /// let run = RunRecord::open(RunKey::new("prod", "r")?, Timestamp::UNIX_EPOCH);
    /// let run = run.suspend(Timestamp::from_micros(5)).resume(Timestamp::from_micros(9));
    /// assert_eq!(run.status, RunStatus::Running);
    /// assert_eq!(run.suspended[0].to, Some(Timestamp::from_micros(9)));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    #[must_use]
    pub fn resume(mut self, at: impl Into<Timestamp>) -> Self {
        let at = at.into();
        self.status = RunStatus::Running;
        if let Some(last) = self.suspended.last_mut() {
            last.to.get_or_insert(at);
        }
        self.heartbeat = self.heartbeat.map(|last| last.max(at));
        self
    }

    /// Reopens the run at this instant, because its stop was reported too early. It continues as running. If
    /// it is watched, this counts as a heartbeat. If it was suspended when it was closed, the suspension
    /// ended at the old stop.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::run::{RunKey, RunRecord, RunStatus};
    /// use stationmaster::Timestamp;
    /// let killed = RunRecord::open(RunKey::new("prod", "r")?, Timestamp::UNIX_EPOCH)
    ///     .heartbeat(Timestamp::from_micros(5))
    ///     .closed(Timestamp::from_micros(5), RunStatus::Killed);
    /// let run = killed.reopened(Timestamp::from_micros(60));
    /// assert_eq!((run.stop, run.heartbeat), (None, Some(Timestamp::from_micros(60))));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    #[must_use]
    pub fn reopened(mut self, now: impl Into<Timestamp>) -> Self {
        let now = now.into();
        let stop = self.stop.take();
        self.status = RunStatus::Running;
        if let Some(last) = self.suspended.last_mut() {
            last.to = last.to.or(stop).or(Some(now));
        }
        self.heartbeat = self.heartbeat.map(|last| last.max(now));
        self
    }

    /// Sets how many nodes the run has from this instant on, until the next instant with another number.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::run::{RunKey, RunRecord};
    /// use stationmaster::Timestamp;
    /// let start = Timestamp::UNIX_EPOCH;
    /// let run = RunRecord::open(RunKey::new("prod", "r")?, start);
    /// let run = run.nodes(start, 4).nodes(Timestamp::from_micros(9), 2);
    /// assert_eq!(run.nodes.values().copied().collect::<Vec<_>>(), [4, 2]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    #[must_use]
    pub fn nodes(mut self, since: impl Into<Timestamp>, nodes: u32) -> Self {
        self.nodes.insert(since.into(), nodes);
        self
    }

    /// Ends the run.
    #[must_use]
    pub fn closed(mut self, stop: impl Into<Timestamp>, status: RunStatus) -> Self {
        self.stop = Some(stop.into());
        self.status = status;
        self
    }

    setters! {
        /// Sets the workflow.
        workflow: Some(WorkflowId);
        /// Sets who started it.
        method: StartMethod;
        /// Sets the user on whose behalf it runs.
        user(user: impl Into<String>) { user = Some(user.into()) }
        /// Sets the host's own text.
        attributes(attributes: impl Into<String>) { attributes = Some(attributes.into()) }
    }

    /// Returns its position in a result.
    pub fn place(&self) -> RunPlace {
        RunPlace { start: self.start, key: self.key.clone() }
    }

    /// Returns true if it is watched for silence: open, not suspended, and with a heartbeat.
    pub fn is_watched(&self) -> bool {
        self.stop.is_none() && self.status != RunStatus::Suspended && self.heartbeat.is_some()
    }

    /// Returns true if the run is active: `start < end && (stop is not set || stop >= begin)`. A window with
    /// `begin >= end` is empty.
    pub fn is_active(&self, begin: impl Into<Timestamp>, end: impl Into<Timestamp>) -> bool {
        let (begin, end) = (begin.into(), end.into());
        begin < end && self.start < end && self.stop.is_none_or(|stop| stop >= begin)
    }

    /// Checks that the run does not stop before it starts.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::StopBeforeStart`] if it does.
    pub fn check(&self) -> Result<(), Invalid> {
        match self.stop {
            Some(stop) if stop < self.start => Err(Invalid::StopBeforeStart {
                id: self.key.id.to_string(),
                micros: self.start.as_micros().saturating_sub(stop.as_micros()),
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
    pub stop: Timestamp,
    /// The status with which it ended.
    pub status: RunStatus,
}

impl RunClose {
    /// Creates the end of the run at this instant.
    pub fn new(key: RunKey, stop: impl Into<Timestamp>, status: RunStatus) -> Self {
        Self { key, stop: stop.into(), status }
    }
}

/// A heartbeat of an open run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunBeat {
    /// The run.
    pub key: RunKey,
    /// When the run was alive. A heartbeat older than the last known one changes nothing.
    pub at: Timestamp,
}

impl RunBeat {
    /// Creates a heartbeat of the run at this instant.
    pub fn new(key: RunKey, at: impl Into<Timestamp>) -> Self {
        Self { key, at: at.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_shown_as_json_names_them() {
        use RunStatus::*;
        for status in [Pending, Starting, Running, Suspended, Resuming, Completed, Failed, Killed, Rejected] {
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        }
    }
}
