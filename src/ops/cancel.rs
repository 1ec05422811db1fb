//! Cancelling tasks: waiting ones at once, those with a holder within a grace period.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::leave;
use super::mark::end_their_sensors;
use super::sense::sensing_task_changed;
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Invalid, Result};
use crate::id::TaskKey;
use crate::lease::{LeaseRef, TaskId};
use crate::store::Tx;
use crate::store::contract::{Held, Move, Wait};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// The result of [`cancel`](crate::store::Tx::cancel) for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cancellation {
    /// The task was in this state and is now [`TaskState::Cancelled`].
    Ended(TaskState),
    /// Its holder is asked to end it. If the holder has not done so by this instant, upkeep ends the task.
    AskedUntil(Timestamp),
    /// The task had already ended in this state. Nothing was changed.
    AlreadyEnded(TaskState),
    /// There is no such task.
    Unknown,
}

/// What to do with one task.
enum Step {
    End(TaskState, Move),
    Ask,
    Nothing(Cancellation),
}

impl Tx<'_> {
    /// Cancels tasks: ends those that wait, and asks the holders of the others to stop within `grace`.
    ///
    /// A task that waits for slots, for an instant or as a sensor becomes [`TaskState::Cancelled`] at once,
    /// with this message for people. A task with a lease keeps the lease and its slots until its holder ends
    /// the task, at most until `now + grace`. The holder learns of the cancellation from its next renewal
    /// ([`Renewal::Cancelled`](crate::lease::Renewal::Cancelled)). A handler of a
    /// [`Worker`](crate::service::Worker) learns of it from its [`Attempt`](crate::service::Attempt). A
    /// keeper that is woken for the cancellation
    /// ([`LoopHandle::wake_for_cancel`](crate::service::LoopHandle::wake_for_cancel)) renews at once.
    /// Otherwise it renews after a third of a lease, so choose a longer grace. With a grace of zero, such a
    /// task also ends at once, and its holder finds the lease stale.
    ///
    /// A cancelled task is never retried, queued again or granted. If its holder reports a failure or gives
    /// it back, it becomes `Cancelled`. If its holder reports a success or a skip, it ends in that state. If
    /// the lease expires, at the deadline or before, the task also becomes `Cancelled`.
    /// [`clear`](Self::clear) runs it again.
    ///
    /// The call may be repeated. The earliest deadline counts, with its message. A key that is named twice is
    /// cancelled once, and gets the same result both times.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooManyBytes`] for a message above [`MAX_TEXT_BYTES`]. Returns
    /// [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::lease::Renewal;
    /// use stationmaster::ops::{AdmitRequest, Cancellation, Finish, Finished};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let (now, minute) = (Timestamp::UNIX_EPOCH, Duration::from_secs(60));
    /// let keys = ["extract", "load"].map(|task| TaskKey::new("prod", "nightly", "r1", task).unwrap());
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 1, minute).started();
    /// store.write(|tx| tx.enqueue(now, &keys.clone().map(NewTask::new)))?;
    /// let lease = store.write(|tx| tx.admit(now, &order))?.granted[0].lease_ref();
    ///
    /// let asked = Cancellation::AskedUntil(now + minute);
    /// let done = store.write(|tx| tx.cancel(now, minute, &keys, "by hand"))?;
    /// assert_eq!(done, [asked, Cancellation::Ended(TaskState::Scheduled)]);
    ///
    /// // The holder learns of it, and stops.
    /// let renewed = store.write(|tx| tx.renew(now, minute, &[lease]))?;
    /// assert_eq!(renewed, [Renewal::Cancelled(now + minute)]);
    /// let finished = store.write(|tx| tx.finish(now, &[Finish::failed(lease, "stopped")]))?;
    /// assert_eq!(finished, [Finished::Ended(TaskState::Cancelled)]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn cancel(
        &mut self,
        now: impl Into<Timestamp>,
        grace: Duration,
        keys: &[TaskKey],
        message: &str,
    ) -> Result<Vec<Cancellation>> {
        let now = now.into();
        self.whole(|tx| {
            if message.len() > MAX_TEXT_BYTES {
                let (what, bytes) = ("a cancel's message", message.len());
                return Err(Invalid::TooManyBytes { what, bytes, cap: MAX_TEXT_BYTES }.into());
            }
            let (mut answers, mut ids) = (vec![Cancellation::Unknown; keys.len()], HashMap::new());
            let mut first: HashMap<TaskId, usize> = HashMap::new();
            for (at, task) in tx.raw().tasks(keys)?.into_iter().enumerate() {
                let Some(task) = task else { continue };
                // No lock is needed for an ended task: it stays ended unless it is cleared.
                match task.state.is_end() {
                    true => answers[at] = Cancellation::AlreadyEnded(task.state),
                    false => {
                        first.entry(task.id).or_insert(at);
                        ids.insert(at, task.id);
                    }
                }
            }
            let mut open: Vec<usize> = first.values().copied().collect();
            open.sort_unstable();
            leave::settle(open, |open| {
                let asked: Vec<TaskId> = open.iter().filter_map(|at| ids.get(at).copied()).collect();
                let held = tx.raw().hold_tasks(&asked, Wait::ForOthers)?;
                cancel_held(tx, now, now + grace, message, open, held, &mut answers)
            })?;
            for (at, id) in ids {
                if let Some(first) = first.get(&id) {
                    answers[at] = answers[*first];
                }
            }
            Ok(answers)
        })
    }
}

/// Cancels tasks that this transaction has locked. Returns the indices of those that changed anyway.
fn cancel_held(
    tx: &mut Tx<'_>,
    now: Timestamp,
    deadline: Timestamp,
    message: &str,
    open: &[usize],
    held: Vec<Held>,
    answers: &mut [Cancellation],
) -> Result<Vec<usize>> {
    let (mut leaving, mut ending) = (Vec::new(), Vec::new());
    let (mut leases, mut asking): (Vec<LeaseRef>, Vec<usize>) = (Vec::new(), Vec::new());
    for (at, held) in open.iter().zip(held) {
        let Held::Task(task) = held else {
            answers[*at] = Cancellation::Unknown;
            continue;
        };
        match decide(&task, now, deadline, message) {
            Step::Nothing(answer) => answers[*at] = answer,
            Step::Ask => {
                leases.push(task.lease_ref());
                asking.push(*at);
            }
            Step::End(was, to) => {
                answers[*at] = Cancellation::Ended(was);
                leaving.push((*task, to));
                ending.push(*at);
            }
        }
    }
    let sensors = end_their_sensors(tx, now, &mut leaving)?;
    let moved = leave::commit(tx, now, &leaving)?;
    let mut missed = Vec::new();
    for ((at, moved), (task, _)) in ending.into_iter().zip(moved).zip(&leaving) {
        if !moved && sensors.contains(&task.id) {
            return Err(sensing_task_changed());
        }
        missed.extend((!moved).then_some(at));
    }
    if !leases.is_empty() {
        for (at, deadline) in asking.into_iter().zip(tx.cancel_leases(&leases, deadline, message)?) {
            match deadline {
                Some(deadline) => answers[at] = Cancellation::AskedUntil(deadline),
                None => missed.push(at),
            }
        }
    }
    Ok(missed)
}

fn decide(task: &TaskRecord, now: Timestamp, deadline: Timestamp, message: &str) -> Step {
    if task.state.is_end() {
        return Step::Nothing(Cancellation::AlreadyEnded(task.state));
    }
    let before = task.lease.as_ref().and_then(|lease| lease.cancel_at);
    let first = before.map_or(deadline, |before| before.min(deadline));
    match before {
        _ if !task.state.is_leased() || first <= now => {
            let kept = task.message.clone().filter(|_| before == Some(first));
            let mut to = Move::new(task.lease_ref(), task.state, TaskState::Cancelled);
            to.ended_at = Some(task.recorded_at(now));
            to.message = kept.or_else(|| Some(message.to_owned()));
            Step::End(task.state, to)
        }
        // Writing it again would not change the row.
        Some(before) if before == first => Step::Nothing(Cancellation::AskedUntil(before)),
        _ => Step::Ask,
    }
}
