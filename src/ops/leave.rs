//! Moves tasks out of states in which they hold leases or slots. Shared by all operations that end or pause
//! an attempt.

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

/// How often a verb retries moves that missed. A move misses only if another transaction changed the task in
/// between, which does not happen this many times in a row by coincidence.
const ROUNDS: usize = 8;

/// Calls `round` with the indices of these items, and again with those that it returns: the items whose tasks
/// changed after it read them.
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

/// Locks the runs of the tasks' current attempts. Returns for each task whether this transaction may close
/// its run: `false` if another transaction holds it. Services leave such a task for later.
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

/// Returns true if the task's current attempt was started and has not ended.
fn is_under_way(task: &TaskRecord) -> bool {
    matches!(task.state, TaskState::Running | TaskState::Sensing)
}

/// Commits moves and closes the runs of the attempts that they end.
pub(super) fn commit(tx: &mut Tx<'_>, now: Timestamp, leaving: &[Leaving]) -> Result<Vec<bool>> {
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    // Everything that can fail comes before the first write.
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

/// Closes the runs of attempts that were ended under these leases without reading their tasks first.
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

/// Returns how the run of a running attempt ends when its task moves to this state.
fn status(to: TaskState) -> RunStatus {
    match to {
        TaskState::Success => RunStatus::Completed,
        TaskState::Failed | TaskState::UpForRetry => RunStatus::Failed,
        _ => RunStatus::Killed,
    }
}

/// Returns the end of the run that records the task's current attempt, if this move ends the attempt.
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

/// Returns the key of the run that records the task's current attempt.
pub(super) fn attempt_run(task: &TaskRecord) -> Result<RunKey> {
    task.attempt_run(task.attempt)
}

/// Returns the move that ends a task whose holder was asked to stop, or `None` if the task was not cancelled.
pub(super) fn cancelled(was: &TaskRecord, now: Timestamp) -> Option<Move> {
    was.lease.as_ref()?.cancel_at?;
    let to = Move::new(was.lease_ref(), was.state, TaskState::Cancelled);
    // The message has held the reason since the holder was asked to stop.
    Some(Move { ended_at: Some(was.recorded_at(now)), message: was.message.clone(), ..to })
}

/// Returns the move of a task whose current attempt failed: a retry or a final failure.
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
