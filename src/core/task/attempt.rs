//! The record of attempts: see `docs/history.md`.

use serde::{Deserialize, Serialize};

use super::record::TaskRecord;
use super::state::TaskState;
use crate::id::{Holder, QueueName};
use crate::time::Timestamp;

/// The number of latest grants of a task whose attempts are kept.
pub(crate) const KEPT_ATTEMPTS: i64 = 16;

/// The number of characters of a message that are kept with an attempt.
pub(crate) const KEPT_CHARACTERS: usize = 1_000;

/// Which attempts of a task are kept, each as a [`PastAttempt`]. Each task chooses for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeptAttempts {
    /// No attempts. No row is written.
    None,
    /// Attempts that did not succeed. A successful attempt writes no row.
    #[default]
    Failures,
    /// All attempts, including those that succeeded, were skipped, or continued after their sensor landed.
    All,
}

/// An attempt that ended, as returned by [`ReadTx::attempts`](crate::store::ReadTx::attempts).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastAttempt {
    /// Its number, from 1.
    pub attempt: u32,
    /// The fencing token of its lease.
    pub epoch: i64,
    /// The queue for which it was granted.
    pub queue: QueueName,
    /// Who held its lease. `None` if the attempt ended as a sensor, which has no lease.
    pub holder: Option<Holder>,
    /// When it was granted.
    pub queued_at: Option<Timestamp>,
    /// When its holder started it. `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The state that followed: `UpForRetry` or `Failed` after a failure, `Scheduled` if the attempt was
    /// given back or its lease was lost, or `Cancelled`. With [`KeptAttempts::All`] it may also be `Success`
    /// or `Skipped`, or `Scheduled` if the task continued after its sensor landed.
    pub became: TaskState,
    /// Whether the attempt was ended by its holder rather than by upkeep, a mark, a cancel or a sensor.
    pub by_holder: bool,
    /// Why it ended; the first 1,000 characters are kept. `None` if its holder gave it back or reported
    /// success.
    pub message: Option<String>,
}

/// Returns true if an attempt with this epoch is among the latest grants of a task whose epoch is `now`.
pub(crate) fn is_of_latest_grants(epoch: i64, now: i64) -> bool {
    epoch > now.saturating_sub(KEPT_ATTEMPTS)
}

impl KeptAttempts {
    /// Returns true for the default, which is omitted when tasks are serialized.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if a move between these states ends an attempt that must be kept.
    pub(crate) fn keep(self, from: TaskState, to: TaskState) -> bool {
        let is_sensor = from == TaskState::Sensing;
        let ends = (from.is_leased() || is_sensor) && to != TaskState::Sensing;
        let has_failed = match to {
            TaskState::UpForRetry | TaskState::Failed | TaskState::Cancelled => true,
            TaskState::Scheduled => !is_sensor,
            _ => false,
        };
        match self {
            Self::None => false,
            Self::Failures => ends && has_failed,
            Self::All => ends && !to.is_leased(),
        }
    }
}

/// Returns the part of the message that is kept after such a move. A task that is given back has no message.
pub(crate) fn kept_message(to: TaskState, by_holder: bool, message: Option<&String>) -> Option<String> {
    let message = message.filter(|_| to != TaskState::Scheduled || !by_holder)?;
    Some(message.chars().take(KEPT_CHARACTERS).collect())
}

impl PastAttempt {
    /// Creates the record of the task's current attempt, which ends at this instant. An attempt never ends
    /// before it began.
    pub(crate) fn of(
        task: &TaskRecord,
        became: TaskState,
        by_holder: bool,
        at: Timestamp,
        message: Option<&String>,
    ) -> Self {
        let started_at = task.started_at.filter(|_| task.state != TaskState::Queued);
        Self {
            attempt: task.attempt,
            epoch: task.epoch,
            queue: task.lane.queue.clone(),
            holder: task.lease.as_ref().map(|lease| lease.holder.clone()),
            queued_at: task.queued_at,
            started_at,
            ended_at: [task.queued_at, started_at].into_iter().flatten().fold(at, Timestamp::max),
            became,
            by_holder,
            message: kept_message(became, by_holder, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_succeeds_or_goes_on_leaves_nothing_unless_all_is_kept() {
        use TaskState::{
            Cancelled, Failed, Queued, Running, Scheduled, Sensing, Skipped, Success, UpForRetry,
        };
        let moves: Vec<_> =
            TaskState::ALL.into_iter().flat_map(|from| TaskState::ALL.map(|to| (from, to))).collect();
        let kept = |which: KeptAttempts| {
            moves.iter().copied().filter(|(from, to)| which.keep(*from, *to)).collect::<Vec<_>>()
        };
        assert_eq!(kept(KeptAttempts::None), []);
        let ends = |from| [Scheduled, UpForRetry, Success, Failed, Skipped, Cancelled].map(|to| (from, to));
        assert_eq!(kept(KeptAttempts::All), [Queued, Running, Sensing].map(ends).concat());
        let kept = kept(KeptAttempts::default());
        let leased = |from| [Scheduled, UpForRetry, Failed, Cancelled].map(|to| (from, to));
        let sensing = [UpForRetry, Failed, Cancelled].map(|to| (Sensing, to));
        assert_eq!(kept, [&leased(Queued)[..], &leased(Running), &sensing].concat());
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let long = "é".repeat(KEPT_CHARACTERS + 1);
        let kept = kept_message(TaskState::Failed, true, Some(&long)).unwrap();
        assert_eq!(kept.len(), 2 * KEPT_CHARACTERS);
        assert_eq!(kept_message(TaskState::Scheduled, true, Some(&long)), None);
        assert!(kept_message(TaskState::Scheduled, false, Some(&long)).is_some());
    }
}
