//! Deletes old rows, and reports what keeps others.

use std::time::Duration;

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

/// How long what a host may still ask for is kept; `None` means until it is acknowledged, or for ever.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Retention {
    pub(super) ended: Option<Duration>,
    pub(super) events: Option<Duration>,
}

/// Forgets what is no longer kept at this instant, at most `limit` of each.
pub(super) fn forget(tx: &mut Tx<'_>, now: Timestamp, keep: Retention, limit: usize) -> Result<Forgotten> {
    // The events first: they keep the tasks.
    let events = match keep.events {
        Some(length) => tx.forget_events(now, length, limit)?,
        None => 0,
    };
    let Some(length) = keep.ended else {
        return Ok(Forgotten { tasks: 0, events, kept_by_events: 0 });
    };
    // Every task that has events was a sensor.
    let tasks = tx.forget_ended(now, length, limit)?;
    let kept_by_events = tx.raw().kept_by_events(sensors_before(now, length), limit)?;
    Ok(Forgotten { tasks, events, kept_by_events })
}
