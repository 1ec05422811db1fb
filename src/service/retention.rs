//! Deletes old rows, and reports what keeps others.

use super::reaper::ReaperOptions;
use crate::error::Result;
use crate::ops::sensors_before;
use crate::store::Tx;
use crate::time::Timestamp;

/// What one tick forgot, and what it could not forget.
pub(super) struct Forgotten {
    pub(super) tasks: usize,
    pub(super) events: usize,
    pub(super) kept_by_events: usize,
}

/// Forgets what the options no longer keep at this instant.
pub(super) fn forget(tx: &mut Tx<'_>, now: Timestamp, options: &ReaperOptions) -> Result<Forgotten> {
    let limit = options.limit;
    // The events first: they keep the tasks.
    let events = match options.retain_events_for {
        Some(length) => tx.forget_events(now, length, limit)?,
        None => 0,
    };
    let Some(length) = options.retain_ended_for else {
        return Ok(Forgotten { tasks: 0, events, kept_by_events: 0 });
    };
    // Every task that has events was a sensor.
    let tasks = tx.forget_ended(now, length, limit)?;
    let kept_by_events = tx.raw().kept_by_events(sensors_before(now, length), limit)?;
    Ok(Forgotten { tasks, events, kept_by_events })
}
