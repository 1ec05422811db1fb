//! Running ended tasks again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::leave;
use crate::error::Result;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::store::Tx;
use crate::store::contract::{Held, Move, Wait};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// The result of [`clear`](crate::store::Tx::clear) for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cleared {
    /// It is ready again.
    Ready,
    /// It has not ended and is in this state. Nothing was changed. To take it from its holder,
    /// [`mark`](crate::store::Tx::mark) it first.
    NotEnded(TaskState),
    /// There is no such task.
    Unknown,
}

impl Tx<'_> {
    /// Makes ended tasks ready again (Airflow: *clear*).
    ///
    /// The attempt number continues, but the retry policy starts over. So does the count of lost leases that
    /// [`LeaseLoss`](crate::task::LeaseLoss) forgives. The policy's time budget still counts from the first
    /// start. Tasks that depend on a cleared one are left unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::ops::{Cleared, Mark};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let (now, key) = (Timestamp::UNIX_EPOCH, TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let cleared = store.write(|tx| {
    ///     tx.enqueue(now, &[NewTask::new(key.clone())])?;
    ///     tx.mark(now, &[Mark::new(key.clone(), TaskState::Failed, "bad input")])?;
    ///     tx.clear(now, std::slice::from_ref(&key))
    /// })?;
    /// assert_eq!(cleared, [Cleared::Ready]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn clear(&mut self, now: impl Into<Timestamp>, keys: &[TaskKey]) -> Result<Vec<Cleared>> {
        let now = now.into();
        self.whole(|tx| {
            let tasks = tx.raw().tasks(keys)?;
            let mut answers = Vec::with_capacity(keys.len());
            // A key that is named twice is cleared once, and gets the same result both times.
            let (mut ids, mut first) = (Vec::new(), HashMap::new());
            for (at, task) in tasks.into_iter().enumerate() {
                answers.push(match task {
                    None => Cleared::Unknown,
                    Some(task) if !task.state.is_end() => Cleared::NotEnded(task.state),
                    Some(task) => {
                        first.entry(task.id).or_insert(at);
                        ids.push((at, task.id));
                        Cleared::Ready
                    }
                });
            }
            let number: HashMap<usize, TaskId> = ids.iter().copied().collect();
            let open = ids.iter().filter(|(at, id)| first.get(id) == Some(at)).map(|(at, _)| *at).collect();
            leave::settle(open, |open| {
                let held: Vec<TaskId> = open.iter().filter_map(|at| number.get(at).copied()).collect();
                let (mut leaving, mut places) = (Vec::new(), Vec::new());
                for (at, held) in open.iter().zip(tx.raw().hold_tasks(&held, Wait::ForOthers)?) {
                    match held {
                        Held::Task(task) if task.state.is_end() => {
                            let to = again(&task, now);
                            leaving.push((*task, to));
                            places.push(*at);
                        }
                        Held::Task(task) => answers[*at] = Cleared::NotEnded(task.state),
                        Held::Busy | Held::Unknown => answers[*at] = Cleared::Unknown,
                    }
                }
                let moved = leave::commit(tx, now, &leaving)?;
                Ok(places.into_iter().zip(moved).filter(|(_, moved)| !*moved).map(|(at, _)| at).collect())
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

/// Returns the move that makes an ended task ready again.
fn again(task: &TaskRecord, now: Timestamp) -> Move {
    let mut to = Move::new(task.lease_ref(), task.state, TaskState::Scheduled);
    to.forgive = task.attempt.saturating_sub(task.forgiven);
    to.lost = Some(0);
    to.ended_at = Some(task.recorded_at(now));
    to
}
