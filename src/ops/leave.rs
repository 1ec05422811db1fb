//! How a task leaves a state in which it held something. All operations that end or pause an attempt share
//! this module.

use super::attempt::{RetryAdvice, tasks_under};
use crate::backoff::{Decision, History, RetryKey, decide};
use crate::bounds::clip;
use crate::error::{Result, StoreError};
use crate::lease::LeaseRef;
use crate::run::{RunClose, RunKey, RunStatus};
use crate::store::Tx;
use crate::store::contract::Move;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// A task as it was read, and the move decided for it.
pub(super) type Leaving = (TaskRecord, Move);

/// How often a verb reads and decides again what its moves missed. Each time another transaction has changed
/// the task in between, so this many times in a row are no coincidence.
const ROUNDS: usize = 8;

/// Runs `round` on these items, by their indices, and again on those that it returns, because their tasks had
/// changed since it read them.
pub(super) fn settle(
    mut open: Vec<usize>,
    mut round: impl FnMut(&[usize]) -> Result<Vec<usize>>,
) -> Result<()> {
    for _ in 0..ROUNDS {
        if open.is_empty() {
            return Ok(());
        }
        open = round(&open)?;
    }
    match open.len() {
        0 => Ok(()),
        tasks => Err(StoreError::conflict(format!(
            "{tasks} tasks were changed by others each time that they were read: run the transaction again"
        ))
        .into()),
    }
}

/// Returns for each task whether this transaction may close the run of its present attempt: `false` if
/// another transaction holds that run. For services, which leave such a task for later.
pub(super) fn hold_runs<'a>(
    tx: &mut Tx<'_>,
    tasks: impl Iterator<Item = &'a TaskRecord>,
) -> Result<Vec<bool>> {
    let mut keys = Vec::new();
    let mut places = Vec::new();
    for task in tasks {
        let records = task.attempt_runs && is_under_way(task);
        places.push(records.then_some(keys.len()));
        if records {
            keys.push(attempt_run(task)?);
        }
    }
    let free = if keys.is_empty() { Vec::new() } else { tx.raw().hold_runs(&keys)? };
    Ok(places
        .into_iter()
        .map(|place| place.is_none_or(|at| free.get(at).is_some_and(|free| *free)))
        .collect())
}

/// Returns true if the task's present attempt was started and has not ended.
fn is_under_way(task: &TaskRecord) -> bool {
    matches!(task.state, TaskState::Running | TaskState::Sensing)
}

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

/// Closes the runs of attempts that ended under these leases before their tasks were read.
pub(super) fn close_ended(tx: &mut Tx<'_>, leases: &[LeaseRef]) -> Result<()> {
    let mut closes = Vec::with_capacity(leases.len());
    for task in tasks_under(tx, leases)?.into_iter().flatten() {
        if let Some(stop) = task.ended_at {
            closes.push(RunClose::new(attempt_run(&task)?, stop, status(task.state)));
        }
    }
    if !closes.is_empty() {
        tx.raw().close_runs_if_open(&closes)?;
    }
    Ok(())
}

/// Returns how a run ends whose attempt was running and moves its task to this state.
fn status(to: TaskState) -> RunStatus {
    match to {
        TaskState::Success => RunStatus::Completed,
        TaskState::Failed | TaskState::UpForRetry => RunStatus::Failed,
        _ => RunStatus::Killed,
    }
}

/// Returns the end of the run that records the task's present attempt, if this move ends the attempt.
fn close_of(was: &TaskRecord, to: &Move, now: Timestamp) -> Result<Option<RunClose>> {
    if !was.attempt_runs || !is_under_way(was) || to.to == TaskState::Sensing {
        return Ok(None);
    }
    let status = match to.to {
        TaskState::Scheduled if was.state == TaskState::Sensing => RunStatus::Completed,
        to => status(to),
    };
    let stop = to.ended_at.unwrap_or_else(|| was.recorded_at(now));
    Ok(Some(RunClose::new(attempt_run(was)?, stop, status)))
}

/// Returns the key under which the task's present attempt is recorded.
pub(super) fn attempt_run(task: &TaskRecord) -> Result<RunKey> {
    task.attempt_run(task.attempt)
}

/// Returns the move that ends a task whose holder was asked to stop. `None` if no one cancelled it.
pub(super) fn cancelled(was: &TaskRecord, now: Timestamp) -> Option<Move> {
    was.lease.as_ref()?.cancel_at?;
    let to = Move::new(was.lease_ref(), was.state, TaskState::Cancelled);
    // The reason was put into the message when it was asked.
    Some(Move { ended_at: Some(was.recorded_at(now)), message: was.message.clone(), ..to })
}

/// Returns the move of a task whose present attempt failed: a retry, or a final failure.
pub(super) fn failed(was: &TaskRecord, now: Timestamp, message: String, advice: RetryAdvice) -> Move {
    let mut to = Move::new(was.lease_ref(), was.state, TaskState::Failed);
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
