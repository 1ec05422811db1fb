//! Deleting what a host no longer needs.

use std::time::Duration;

use crate::error::Result;
use crate::run::RunKey;
use crate::store::Tx;
use crate::time::Timestamp;

impl Tx<'_> {
    /// Deletes events that a host has handled, and returns how many of them existed.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn acknowledge_events(&mut self, seqs: &[u64]) -> Result<usize> {
        Ok(self.writes()?.acknowledge_events(seqs)?)
    }

    /// Deletes at most `limit` tasks that ended longer ago than `keep`, earliest first, with their sensors.
    /// Returns how many it deleted.
    ///
    /// Tasks that were sensors are kept for at least a minute. Pokers learn of an end from the sensor's row.
    /// A poker that misses a row whose end it has not seen reads all its sensors again. Tasks with an
    /// unacknowledged event always stay. A [`Reaper`](crate::service::Reaper) does this on its own.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn forget_ended(&mut self, now: impl Into<Timestamp>, keep: Duration, limit: usize) -> Result<usize> {
        let now = now.into();
        Ok(self.writes()?.forget_ended(now - keep, sensors_before(now, keep), limit)?)
    }

    /// Deletes at most `limit` events that are older than `keep`, earliest first, acknowledged or not.
    /// Returns how many it deleted. A [`Reaper`](crate::service::Reaper) with
    /// [`retain_events_for`](crate::service::Reaper::retain_events_for) does this on its own.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn forget_events(
        &mut self,
        now: impl Into<Timestamp>,
        keep: Duration,
        limit: usize,
    ) -> Result<usize> {
        Ok(self.writes()?.forget_events(now.into() - keep, limit)?)
    }

    /// Deletes runs, open or not, and returns how many existed.
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
    /// Open runs stay, however old. The store chooses which runs go first; call again until it deletes fewer
    /// than `limit`.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn forget_stopped_runs(&mut self, before: impl Into<Timestamp>, limit: usize) -> Result<usize> {
        Ok(self.writes()?.forget_stopped_runs(before.into(), limit)?)
    }
}

/// The minimum time for which sensors are kept.
const SENSORS_ARE_KEPT: Duration = Duration::from_secs(60);

/// Returns the instant before which sensors are deleted.
pub(crate) fn sensors_before(now: Timestamp, keep: Duration) -> Timestamp {
    now - keep.max(SENSORS_ARE_KEPT)
}
