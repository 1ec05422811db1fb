//! The events of a task that the feed records.

use serde::{Deserialize, Serialize};

use super::state::TaskState;

/// Which events of a task are in the feed. The task decides, so no consumer has to exist when the task ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Feed {
    /// No events. No row is written.
    #[default]
    Off,
    /// Each end of the task, with its outcome.
    Ends,
    /// Each end, and the other results of its sensor: the task continues after a landing, or is tried again.
    EndsAndSensors,
}

impl Feed {
    /// Returns true if a move between these states is an event of the feed.
    pub(crate) fn includes(self, from: TaskState, to: TaskState) -> bool {
        let of_sensor =
            from == TaskState::Sensing && matches!(to, TaskState::Scheduled | TaskState::UpForRetry);
        match self {
            Self::Off => false,
            Self::Ends => to.is_end(),
            Self::EndsAndSensors => to.is_end() || of_sensor,
        }
    }
}
