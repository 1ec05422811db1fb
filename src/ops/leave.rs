//! How a task leaves a state in which it held something. All operations that end or pause an attempt share
//! this module.

use super::attempt::RetryAdvice;
use crate::backoff::{Decision, History, RetryKey, decide};
use crate::bounds::clip;
use crate::error::Result;
use crate::run::{RunClose, RunKey, RunStatus};
use crate::store::Tx;
use crate::store::contract::{Move, StateSet};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// A task as it was read, and the move decided for it.
pub(super) type Leaving = (TaskRecord, Move);

/// Commits moves and closes the runs of the attempts that they end.
pub(super) fn commit(tx: &mut Tx<'_>, now: Timestamp, leaving: &[Leaving]) -> Result<Vec<bool>> {
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    // Everything that can be refused comes before the first write.
    let closes: Vec<Option<RunClose>> =
        leaving.iter().map(|(was, to)| close_of(was, to, now)).collect::<Result<_>>()?;
    let moves: Vec<Move> = leaving.iter().map(|(_, to)| to.clone()).collect();
    let moved = tx.move_tasks(&moves)?;
    let closes = closes.into_iter().zip(&moved).filter(|(_, moved)| **moved);
    let closes: Vec<RunClose> = closes.filter_map(|(close, _)| close).collect();
    if !closes.is_empty() {
        tx.raw().close_runs_if_open(&closes)?;
    }
    Ok(moved)
}

/// Returns the end of the run that records the task's present attempt, if this move ends the attempt.
fn close_of(was: &TaskRecord, to: &Move, now: Timestamp) -> Result<Option<RunClose>> {
    let under_way = matches!(was.state, TaskState::Running | TaskState::Sensing);
    if !was.attempt_runs || !under_way || to.to == TaskState::Sensing {
        return Ok(None);
    }
    let status = match to.to {
        TaskState::Success => RunStatus::Completed,
        TaskState::Failed | TaskState::UpForRetry => RunStatus::Failed,
        TaskState::Scheduled if was.state == TaskState::Sensing => RunStatus::Completed,
        _ => RunStatus::Killed,
    };
    let stop = to.ended_at.unwrap_or_else(|| was.recorded_at(now));
    Ok(Some(RunClose::new(attempt_run(was)?, stop, status)))
}

/// Returns the key under which the task's present attempt is recorded.
pub(super) fn attempt_run(task: &TaskRecord) -> Result<RunKey> {
    task.attempt_run(task.attempt)
}

/// Returns the move of a task whose present attempt failed: a retry, or a final failure.
pub(super) fn failed(
    was: &TaskRecord,
    from: StateSet,
    now: Timestamp,
    message: String,
    advice: RetryAdvice,
) -> Move {
    let mut to = Move::new(was.lease_ref(), from, TaskState::Failed);
    to.ended_at = Some(was.recorded_at(now));
    let counted = was.attempt.saturating_sub(was.forgiven).max(1);
    let first = was.first_started_at.or(was.queued_at).unwrap_or(now);
    let history = History::new(counted, first, now);
    let history = match advice {
        RetryAdvice::Policy => Some(history),
        RetryAdvice::NotBefore(hint) => Some(history.hint(hint)),
        RetryAdvice::After(delay) => Some(history.override_delay(delay)),
        RetryAdvice::Never => None,
    };
    let key = RetryKey::new(&was.key).logical_date(was.logical_date);
    match history.map(|history| decide(&was.retry, &key, &history)) {
        Some(Decision::RetryAt(at)) => {
            to.to = TaskState::UpForRetry;
            to.due = Some(at);
            to.message = Some(message);
        }
        Some(Decision::GiveUp(why)) => to.message = Some(clip(format!("{message} ({why})"))),
        None => to.message = Some(message),
    }
    to
}
