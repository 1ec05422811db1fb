//! The states of a task.

use serde::{Deserialize, Serialize};

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskState {
    /// Waits for slots or for its due instant.
    Scheduled,
    /// Admitted but not started: holds slots under a lease.
    Queued,
    /// Started: holds slots under a lease.
    Running,
    /// Failed, and waits for its due instant before the next attempt.
    UpForRetry,
    /// Waits as a registered sensor, without a lease.
    Sensing,
    /// Ended successfully.
    Success,
    /// Failed, and will not be tried again.
    Failed,
    /// Ended without doing its work, on purpose.
    Skipped,
    /// Ended because someone [cancelled](crate::store::Tx::cancel) it.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Scheduled,
        Self::Queued,
        Self::Running,
        Self::UpForRetry,
        Self::Sensing,
        Self::Success,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Returns true for [`Self::Success`], [`Self::Failed`], [`Self::Skipped`] and [`Self::Cancelled`].
    pub fn is_end(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Skipped | Self::Cancelled)
    }

    /// Returns true for [`Self::Queued`] and [`Self::Running`]: the task has a lease.
    pub fn is_leased(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// Returns the name that is stored and shown, in Airflow's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::UpForRetry => "up_for_retry",
            Self::Sensing => "sensing",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with this name, or `None` if there is no such state.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
