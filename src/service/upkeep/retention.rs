//! Deletes old rows, and reports what keeps others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::feed::turn::{accepted, is_gone};
use crate::error::{Invalid, Result};
use crate::id::Holder;
use crate::ops::{ends, forget_ended_in, sensors_before};
use crate::store::Tx;
use crate::task::TaskState;
use crate::time::Timestamp;

/// What one tick forgot, and what it could not forget.
pub(super) struct Forgotten {
    pub(super) tasks: usize,
    pub(super) events: usize,
    pub(super) kept_by_events: usize,
    pub(super) feed: usize,
    pub(super) dropped: Vec<Holder>,
    /// Whether it reached its limit, so that there may be more.
    pub(super) is_full: bool,
}

/// How long what a host may still ask for is kept; `None` means until it is acknowledged, or for ever.
#[derive(Debug, Clone, Default)]
pub(super) struct Retention {
    /// Of the states that are not named below.
    pub(super) ended: Option<Duration>,
    pub(super) states: BTreeMap<TaskState, Duration>,
    pub(super) events: Option<Duration>,
    pub(super) feed: Option<Duration>,
    /// After how long consumers that were not seen are dropped.
    pub(super) consumers: Option<Duration>,
}

impl Retention {
    fn of(&self, state: TaskState) -> Option<Duration> {
        self.states.get(&state).copied().or(self.ended)
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        match self.states.keys().find(|state| !state.is_end()) {
            Some(state) => Err(Invalid::NotAnEnd { state: state.as_str() }),
            None => Ok(()),
        }
    }
}

/// Forgets what is no longer kept at this instant: at most `limit` events, and as many tasks of each state.
pub(super) fn forget(tx: &mut Tx<'_>, now: Timestamp, keep: &Retention, limit: usize) -> Result<Forgotten> {
    // The events first: they keep the tasks.
    let events = match keep.events {
        Some(length) => tx.forget_events(now, length, limit)?,
        None => 0,
    };
    let (feed, dropped) = forget_feed(tx, now, keep, limit)?;
    let is_full = events >= limit || feed >= limit;
    let mut forgotten = Forgotten { tasks: 0, events, kept_by_events: 0, feed, dropped, is_full };
    for state in ends() {
        // Each state has the whole limit: many that succeed do not keep those that failed.
        if let Some(length) = keep.of(state) {
            let gone = forget_ended_in(tx, state, now, length, limit)?;
            forgotten.tasks += gone;
            forgotten.is_full |= gone >= limit;
        }
    }
    // Every task that has events was a sensor.
    if let Some(shortest) = ends().filter_map(|state| keep.of(state)).min() {
        forgotten.kept_by_events = tx.raw().kept_by_events(sensors_before(now, shortest), limit)?;
    }
    Ok(forgotten)
}

/// Drops consumers that are gone, and deletes what all others have accepted or what is too old. Returns how many
/// events it deleted, and whom it dropped.
fn forget_feed(
    tx: &mut Tx<'_>,
    now: Timestamp,
    keep: &Retention,
    limit: usize,
) -> Result<(usize, Vec<Holder>)> {
    let raw = tx.writes()?;
    let mut consumers = raw.consumers()?;
    if consumers.is_empty() && keep.feed.is_none() {
        return Ok((0, Vec::new()));
    }
    let mut dropped = Vec::new();
    for consumer in &mut consumers {
        let Some(after) = keep.consumers.filter(|after| is_gone(consumer, now, *after)) else { continue };
        // It may have read since.
        let Some(mut held) = raw.hold_consumer(&consumer.name)? else { continue };
        if is_gone(&held, now, after) {
            held.dropped = true;
            raw.put_consumer(&held)?;
            dropped.push(held.name.clone());
        }
        *consumer = held;
    }
    let before = keep.feed.map_or(Timestamp::MIN, |length| now - length);
    Ok((raw.forget_feed(accepted(&consumers), before, limit)?, dropped))
}
