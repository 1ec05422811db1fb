//! The record of attempts that did not succeed: see `docs/history.md`.

use serde::{Deserialize, Serialize};

use super::record::TaskRecord;
use super::state::TaskState;
use crate::id::{Holder, QueueName};
use crate::time::Timestamp;

/// The attempts of this many latest grants of a task are kept.
pub(crate) const KEPT_ATTEMPTS: i64 = 16;

/// How many characters of a message are kept with an attempt.
pub(crate) const KEPT_CHARACTERS: usize = 1_000;

/// An attempt that ended without success, as [`ReadTx::attempts`](crate::store::ReadTx::attempts) returns it.
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
    /// The state that followed: `UpForRetry` or `Failed` after a failure, `Scheduled` if it was given back or its lease
    /// was lost, or `Cancelled`.
    pub became: TaskState,
    /// Whether its holder ended it. Otherwise upkeep, a mark, a cancel or a sensor did.
    pub by_holder: bool,
    /// Why it ended: the first 1,000 characters. `None` if it was given back.
    pub message: Option<String>,
}

/// Returns true if an attempt of this epoch is one of the latest grants of a task that has this epoch now.
pub(crate) fn is_of_latest_grants(epoch: i64, now: i64) -> bool {
    epoch > now.saturating_sub(KEPT_ATTEMPTS)
}

/// Returns true if a move between these states ends an attempt without success.
#[cfg_attr(not(any(feature = "sqlite", test)), allow(dead_code))]
pub(crate) fn is_kept(from: TaskState, to: TaskState) -> bool {
    match to {
        TaskState::UpForRetry | TaskState::Failed | TaskState::Cancelled => {
            from.is_leased() || from == TaskState::Sensing
        }
        TaskState::Scheduled => from.is_leased(),
        _ => false,
    }
}

/// Returns what is kept of the message of such a move. A task that is given back has no message.
pub(crate) fn kept_message(to: TaskState, by_holder: bool, message: Option<&String>) -> Option<String> {
    let message = message.filter(|_| to != TaskState::Scheduled || !by_holder)?;
    Some(message.chars().take(KEPT_CHARACTERS).collect())
}

impl PastAttempt {
    /// Creates the record of the task's present attempt, which ends at this instant. An attempt ends no earlier than it
    /// began.
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
    fn what_succeeds_or_goes_on_leaves_nothing() {
        use TaskState::{Cancelled, Failed, Queued, Running, Scheduled, Sensing, UpForRetry};
        let kept: Vec<_> = TaskState::ALL
            .into_iter()
            .flat_map(|from| TaskState::ALL.map(|to| (from, to)))
            .filter(|(from, to)| is_kept(*from, *to))
            .collect();
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
