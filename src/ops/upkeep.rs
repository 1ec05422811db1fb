//! Deleting what a host needs no longer.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::error::Result;
use crate::run::RunKey;
use crate::store::Tx;
use crate::time;

impl Tx<'_> {
    /// Deletes events that a host has dealt with, and returns how many of them were there.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn acknowledge_events(&mut self, seqs: &[u64]) -> Result<usize> {
        Ok(self.raw().acknowledge_events(seqs)?)
    }

    /// Deletes at most `limit` tasks that ended longer ago than `keep`, earliest first, with their sensors,
    /// and returns how many.
    ///
    /// Tasks that were sensors are kept for a minute at least. Pokers learn of an end from the sensor's row;
    /// a poker that misses a row whose end it has not seen reads all its sensors again. Tasks with an event
    /// that is not acknowledged stay in any case. A [`Reaper`](crate::service::Reaper) does this on its own.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn forget_ended(&mut self, now: DateTime<Utc>, keep: Duration, limit: usize) -> Result<usize> {
        Ok(self.raw().forget_ended(time::sub(now, keep), sensors_before(now, keep), limit)?)
    }

    /// Deletes at most `limit` events that are older than `keep`, earliest first, acknowledged or not, and
    /// returns how many. A [`Reaper`](crate::service::Reaper) with
    /// [`retain_events_for`](crate::service::ReaperOptions::retain_events_for) does this on its own.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn forget_events(&mut self, now: DateTime<Utc>, keep: Duration, limit: usize) -> Result<usize> {
        Ok(self.raw().forget_events(time::sub(now, keep), limit)?)
    }

    /// Deletes runs, open or not, and returns how many there were.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn delete_runs(&mut self, keys: &[RunKey]) -> Result<usize> {
        Ok(self.raw().delete_runs(keys)?)
    }

    /// Deletes at most `limit` closed runs that both started and stopped before an instant, and returns how
    /// many.
    ///
    /// Open runs stay, however old. Which go first is the store's choice; call again until fewer than `limit`
    /// went.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn forget_stopped_runs(&mut self, before: DateTime<Utc>, limit: usize) -> Result<usize> {
        Ok(self.raw().forget_stopped_runs(before, limit)?)
    }
}

/// Sensors are kept for this long at least.
const SENSORS_ARE_KEPT: Duration = Duration::from_secs(60);

/// The instant before which sensors are deleted.
pub(crate) fn sensors_before(now: DateTime<Utc>, keep: Duration) -> DateTime<Utc> {
    time::sub(now, keep.max(SENSORS_ARE_KEPT))
}
