//! Forgetting what is old, and telling what keeps it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::reaper::ReaperOptions;
use crate::error::Result;
use crate::store::StoreTx;
use crate::time;

/// Tasks that were sensors are kept this long at least. Pokers learn of an end from the sensor's row; one that finds a row gone
/// which it has not seen end cannot know which, and reads all its sensors again.
const SENSORS_ARE_KEPT: Duration = Duration::from_secs(60);

/// What one tick forgot, and what it could not.
pub(super) struct Forgotten {
    pub(super) tasks: usize,
    pub(super) events: usize,
    pub(super) kept_by_events: usize,
}

/// Forgets what the options do not keep at this instant.
pub(super) fn forget(tx: &mut dyn StoreTx, now: DateTime<Utc>, options: &ReaperOptions) -> Result<Forgotten> {
    let limit = options.limit;
    // The events first: they keep the tasks.
    let events = match options.keep_events {
        Some(length) => tx.forget_events(time::sub(now, length), limit)?,
        None => 0,
    };
    let Some(length) = options.keep_ended else {
        return Ok(Forgotten { tasks: 0, events, kept_by_events: 0 });
    };
    // Every task that has events was a sensor.
    let sensors_before = time::sub(now, length.max(SENSORS_ARE_KEPT));
    let tasks = tx.forget_ended(time::sub(now, length), sensors_before, limit)?;
    Ok(Forgotten { tasks, events, kept_by_events: tx.kept_by_events(sensors_before, limit)? })
}
