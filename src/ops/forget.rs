//! Deleting data that a host no longer needs.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::id::Holder;
use crate::run::RunKey;
use crate::store::Tx;
use crate::task::TaskState;
use crate::time::Timestamp;

impl Tx<'_> {
    /// Deletes at most `limit` tasks that ended longer ago than `keep`, with their sensors. Returns the
    /// number deleted. Successful tasks go first, then failed, skipped and cancelled ones, each kind in the
    /// order in which they ended.
    ///
    /// Tasks that were sensors are kept for at least a minute. Pokers learn of an end from the sensor's row.
    /// A poker reads all its sensors again if a row is gone whose end it has not seen. Feed events outlive
    /// their tasks. An [`Upkeep`](crate::service::Upkeep) does this on its own.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn forget_ended(&mut self, now: impl Into<Timestamp>, keep: Duration, limit: usize) -> Result<usize> {
        let now = now.into();
        let mut gone = 0;
        for state in ends() {
            if gone < limit {
                gone += forget_ended_in(self, state, now, keep, limit - gone)?;
            }
        }
        Ok(gone)
    }

    /// Deletes consumers of the feed, so that they no longer hold back events. Returns for each whether it
    /// existed. A consumer that is still reading is registered again as a new one.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn delete_consumers(&mut self, names: &[Holder]) -> Result<Vec<bool>> {
        self.whole(|tx| {
            let raw = tx.raw();
            names.iter().map(|name| raw.delete_consumer(name).map_err(Error::from)).collect()
        })
    }

    /// Deletes runs, open or closed, and returns how many existed.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn delete_runs(&mut self, keys: &[RunKey]) -> Result<usize> {
        Ok(self.writes()?.delete_runs(keys)?)
    }

    /// Deletes at most `limit` closed runs that both started and stopped before an instant. Returns how many
    /// it deleted.
    ///
    /// Open runs stay, however old they are. The store chooses which runs to delete first. Call it again
    /// until it deletes fewer than `limit`.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn forget_stopped_runs(&mut self, before: impl Into<Timestamp>, limit: usize) -> Result<usize> {
        Ok(self.writes()?.forget_stopped_runs(before.into(), limit)?)
    }
}

/// Returns the states in which a task has ended.
pub(crate) fn ends() -> impl Iterator<Item = TaskState> {
    TaskState::ALL.into_iter().filter(|state| state.is_end())
}

/// Works like [`Tx::forget_ended`], for tasks that ended in this state.
pub(crate) fn forget_ended_in(
    tx: &mut Tx<'_>,
    state: TaskState,
    now: Timestamp,
    keep: Duration,
    limit: usize,
) -> Result<usize> {
    let store = tx.writes()?;
    Ok(store.forget_ended(state, now - keep, sensors_before(now, keep), limit)?)
}

/// The minimum time that sensors are kept.
const SENSORS_ARE_KEPT: Duration = Duration::from_secs(60);

/// Returns the instant before which sensors are deleted.
fn sensors_before(now: Timestamp, keep: Duration) -> Timestamp {
    now - keep.max(SENSORS_ARE_KEPT)
}
