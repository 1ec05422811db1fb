//! The events of the feed, and its consumers: see [`FeedReader`](crate::service::FeedReader).

pub(crate) mod turn;

use serde::{Deserialize, Serialize};

use crate::id::{Holder, TaskKey};
use crate::lease::TaskId;
use crate::sensor::EndReason;
use crate::task::TaskState;
use crate::time::Timestamp;

/// One entry of the feed: a task's move to a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskEvent {
    /// The number of the event. Numbers start at 1, have no gaps, and are never reused.
    pub seq: u64,
    /// The number of the task.
    pub id: TaskId,
    /// The task.
    pub task: TaskKey,
    /// The attempt after which it happened; 0 if the task was never granted.
    pub attempt: u32,
    /// When it happened.
    pub at: Timestamp,
    /// The state to which the task moved. After a sensor it may be [`TaskState::Scheduled`] (the sensor
    /// landed, and the task continues) or [`TaskState::UpForRetry`].
    pub state: TaskState,
    /// Why the task's sensor ended, if this event ended one.
    #[serde(default)]
    pub reason: Option<EndReason>,
    /// The value with which the task ended or its sensor landed.
    pub value: Option<String>,
    /// The message for people.
    pub message: Option<String>,
}

/// A consumer of the feed, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Consumer {
    /// Its name.
    pub name: Holder,
    /// The last event that it has accepted or lost.
    pub cursor: u64,
    /// When it last read, or last renewed its turn.
    pub seen_at: Timestamp,
    /// How many events were deleted before it accepted them.
    pub lost: u64,
    /// Whether it was not seen for too long and therefore no longer holds back deletion. Its next read clears
    /// this.
    pub dropped: bool,
    /// Which of several readers with this name has the turn.
    pub reader: i64,
    /// When that turn ends unless it is renewed.
    pub until: Timestamp,
}
