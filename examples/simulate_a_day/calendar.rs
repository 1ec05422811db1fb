//! The calendar of events. Events at the same instant are in order of insertion.

use std::collections::BTreeMap;

use stationmaster::Timestamp;

/// Returns the seconds from `earlier` to `at`.
pub(crate) fn seconds_since(earlier: Timestamp, at: Timestamp) -> f64 {
    at.saturating_duration_since(earlier).as_secs_f64()
}

#[derive(Debug)]
pub(crate) struct Calendar<E> {
    entries: BTreeMap<(Timestamp, u64), E>,
    count: u64,
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), count: 0 }
    }
}

impl<E> Calendar<E> {
    pub(crate) fn put(&mut self, at: Timestamp, event: E) {
        self.count += 1;
        self.entries.insert((at, self.count), event);
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// Removes and returns the next due event.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<E> {
        let (key, _) = self.entries.first_key_value().filter(|((at, _), _)| *at <= now)?;
        let key = *key;
        self.entries.remove(&key)
    }
}
