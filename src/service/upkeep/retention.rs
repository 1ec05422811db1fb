//! Deletes old rows, and drops consumers that keep other rows.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::feed::turn::{accepted, is_gone};
use crate::error::{Invalid, Result};
use crate::id::Holder;
use crate::ops::{ends, forget_ended_in};
use crate::store::Tx;
use crate::task::TaskState;
use crate::time::Timestamp;

/// What one tick deleted, and what it could not delete.
pub(super) struct Forgotten {
    pub(super) tasks: usize,
    pub(super) feed: usize,
    pub(super) dropped: Vec<Holder>,
    /// Whether the feed has a reader, or its events are deleted by age.
    pub(super) is_fed: bool,
    /// Whether it reached its limit, so that there may be more.
    pub(super) is_full: bool,
}

/// How long rows that a host may still query are kept. `None` means forever, or for events of the feed, until
/// they are accepted.
#[derive(Debug, Clone, Default)]
pub(super) struct Retention {
    /// For the states that have no entry of their own.
    pub(super) ended: Option<Duration>,
    pub(super) states: BTreeMap<TaskState, Duration>,
    pub(super) feed: Option<Duration>,
    /// How long after it was last seen a consumer is dropped.
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

/// Deletes what is no longer kept at this instant: at most `limit` events, and at most `limit` tasks of each
/// state.
pub(super) fn forget(tx: &mut Tx<'_>, now: Timestamp, keep: &Retention, limit: usize) -> Result<Forgotten> {
    let mut forgotten = forget_feed(tx, now, keep, limit)?;
    for state in ends() {
        // Each state has the whole limit, so that many successes do not delay deleting failures.
        if let Some(length) = keep.of(state) {
            let gone = forget_ended_in(tx, state, now, length, limit)?;
            forgotten.tasks += gone;
            forgotten.is_full |= gone >= limit;
        }
    }
    Ok(forgotten)
}

/// Drops absent consumers, and deletes events that all others have accepted or that are too old.
fn forget_feed(tx: &mut Tx<'_>, now: Timestamp, keep: &Retention, limit: usize) -> Result<Forgotten> {
    let raw = tx.writes()?;
    let mut consumers = raw.consumers()?;
    let is_fed = !consumers.is_empty() || keep.feed.is_some();
    let mut dropped = Vec::new();
    for consumer in &mut consumers {
        let Some(after) = keep.consumers.filter(|after| is_gone(consumer, now, *after)) else { continue };
        // It may have read meanwhile.
        let Some(mut held) = raw.hold_consumer(&consumer.name)? else { continue };
        if is_gone(&held, now, after) {
            held.dropped = true;
            raw.put_consumer(&held)?;
            dropped.push(held.name.clone());
        }
        *consumer = held;
    }
    let before = keep.feed.map_or(Timestamp::MIN, |length| now - length);
    let feed = if is_fed { raw.forget_feed(accepted(&consumers), before, limit)? } else { 0 };
    Ok(Forgotten { tasks: 0, feed, dropped, is_fed, is_full: feed >= limit })
}
