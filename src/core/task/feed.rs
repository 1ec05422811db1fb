//! Which events of a task the feed records.

use serde::{Deserialize, Serialize};

use super::state::TaskState;

/// Which events of a task are in the feed. The task decides, so no consumer has to exist when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Feed {
    /// Nothing. No row is written.
    #[default]
    Off,
    /// How it ended, each time that it ends.
    Ends,
    /// How it ended, and what else its sensor led to: that the task continues after a landing, or is tried again.
    EndsAndSensors,
}

impl Feed {
    /// Returns true if a move between these states is an event of the feed.
    pub(crate) fn tells(self, from: TaskState, to: TaskState) -> bool {
        let of_sensor =
            from == TaskState::Sensing && matches!(to, TaskState::Scheduled | TaskState::UpForRetry);
        match self {
            Self::Off => false,
            Self::Ends => to.is_end(),
            Self::EndsAndSensors => to.is_end() || of_sensor,
        }
    }
}
