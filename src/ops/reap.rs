//! Reaping the leases of dead holders.

use super::attempt::{Finished, RetryAdvice, became};
use super::leave;
use crate::error::Result;
use crate::store::Tx;
use crate::store::contract::Move;
use crate::task::{LeaseLoss, TaskRecord, TaskState};
use crate::time::Timestamp;

/// A task whose lease expired.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reaped {
    /// The task as it was, with the expired lease.
    pub task: TaskRecord,
    /// What happened to it.
    pub became: Finished,
}

impl Tx<'_> {
    /// Ends at most `limit` leases that expired at `now` or earlier, and frees their slots. The tasks are
    /// scheduled again, retried or failed as [`LeaseLoss`] and the retry policy say. Those that were
    /// [cancelled](Self::cancel) end as [`TaskState::Cancelled`]. The holder's later calls under these leases
    /// are stale. Leases that another transaction holds right now are left for later.
    ///
    /// It ends expired leases for whatever reason they were not renewed. An
    /// [`Upkeep`](crate::service::Upkeep) that was itself delayed waits first. A host that calls this
    /// function directly must decide for itself whether to wait.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn reap(&mut self, now: impl Into<Timestamp>, limit: usize) -> Result<Vec<Reaped>> {
        let now = now.into();
        reap_expired_by(self, now, now, limit)
    }
}

/// Works like [`reap`](crate::store::Tx::reap) at `now`, for leases that expired at `expired_by` or earlier.
pub(crate) fn reap_expired_by(
    tx: &mut Tx<'_>,
    now: Timestamp,
    expired_by: Timestamp,
    limit: usize,
) -> Result<Vec<Reaped>> {
    tx.whole(|tx| {
        let leaving: Vec<_> = hold_free(tx, expired_by, limit)?
            .into_iter()
            .map(|task| {
                let to = decide(&task, now);
                (task, to)
            })
            .collect();
        // This transaction holds the leases, so a move misses only in a store that cannot hold them. There,
        // another transaction has just ended the lease.
        let moved = leave::commit(tx, now, &leaving)?;
        let reaped = leaving.into_iter().zip(moved).filter(|(_, moved)| *moved);
        Ok(reaped.map(|((task, to), _)| Reaped { task, became: became(&to) }).collect())
    })
}

/// The most leases to read, as a multiple of `limit`. All their records are in memory at once, including
/// payloads.
const LOOKS: usize = 64;

/// Locks at most `limit` expired leases with their runs. A task whose run another transaction holds is reaped
/// later. Such tasks do not block those after them: if too few others are found, twice as many leases are
/// read, up to [`LOOKS`] times `limit`.
fn hold_free(tx: &mut Tx<'_>, expired_by: Timestamp, limit: usize) -> Result<Vec<TaskRecord>> {
    let mut looks_at = limit;
    loop {
        let expired = tx.decides()?.hold_expired(expired_by, looks_at)?;
        let are_all = expired.len() < looks_at;
        let free = leave::hold_runs(tx, expired.iter())?;
        let free = expired.into_iter().zip(free).filter(|(_, free)| *free).map(|(task, _)| task);
        let free: Vec<TaskRecord> = free.take(limit).collect();
        if are_all || free.len() >= limit || looks_at >= limit.saturating_mul(LOOKS) {
            return Ok(free);
        }
        looks_at = looks_at.saturating_mul(2);
    }
}

fn decide(task: &TaskRecord, now: Timestamp) -> Move {
    // Either the deadline of the cancellation passed or the holder died before it. There is no retry.
    if let Some(cancelled) = leave::cancelled(task, now) {
        return cancelled;
    }
    let holder = task.lease.as_ref().map_or("its holder", |lease| lease.holder.as_str());
    let message = format!("lease lost: {holder} did not renew it in time");
    let lost = Some(task.lost.saturating_add(1));
    match task.lease_loss {
        LeaseLoss::Requeue { at_most } if task.lost < at_most => Move {
            forgive: 1,
            at: Some(now),
            lost,
            message: Some(message),
            value: task.value.clone(),
            ..Move::new(task.lease_ref(), task.state, TaskState::Scheduled)
        },
        LeaseLoss::Requeue { .. } | LeaseLoss::Fail => {
            Move { lost, ..leave::failed(task, now, message, RetryAdvice::Policy) }
        }
    }
}
