//! Running ended tasks again.

use serde::{Deserialize, Serialize};

use super::leave;
use crate::error::Result;
use crate::id::TaskKey;
use crate::store::Tx;
use crate::store::contract::{Move, StateSet};
use crate::task::TaskState;
use crate::time::Timestamp;

/// What happened to a task that was to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cleared {
    /// It is ready again.
    Ready,
    /// It has not ended and is in this state. Nothing was changed. [`mark`](crate::store::Tx::mark) it first
    /// to take it from its holder.
    NotEnded(TaskState),
    /// There is no such task.
    Unknown,
}

impl Tx<'_> {
    /// Makes ended tasks ready again (Airflow: *clear*).
    ///
    /// The attempt number continues, but the retry policy starts over. The lost leases that
    /// [`LeaseLoss`](crate::task::LeaseLoss) forgives are counted from 0 again. The policy's time budget
    /// still counts from the first start. Tasks that depend on a cleared one are left unchanged.
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
            let ends = StateSet::of(&[TaskState::Success, TaskState::Failed, TaskState::Skipped]);
            let mut leaving = Vec::new();
            let mut answers = Vec::with_capacity(keys.len());
            for task in tx.raw().tasks(keys)? {
                answers.push(match task {
                    None => Cleared::Unknown,
                    Some(task) if !task.state.is_end() => Cleared::NotEnded(task.state),
                    Some(task) => {
                        let mut to = Move::new(task.lease_ref(), ends, TaskState::Scheduled);
                        to.forgive = task.attempt.saturating_sub(task.forgiven);
                        to.lost = Some(0);
                        to.ended_at = Some(task.recorded_at(now));
                        leaving.push((task, to));
                        Cleared::Ready
                    }
                });
            }
            // If a key is named twice, the second finds the task already moved, which is what was asked for.
            let _: Vec<bool> = leave::commit(tx, now, &leaving)?;
            Ok(answers)
        })
    }
}
