//! What is written down about a task for those who listen.

use serde::{Deserialize, Serialize};

use super::state::TaskState;

/// What the feed tells about a task. The task's own choice, so nobody has to listen when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Feed {
    /// Nothing. No row is written.
    #[default]
    Off,
    /// How it ended, each time that it ends.
    Ends,
    /// How it ended, and what its sensor made of it otherwise: that it goes on after a landing, and that it is
    /// tried again.
    EndsAndSensors,
}

impl Feed {
    /// Returns true if the feed tells of a move between these states.
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
