//! What is to happen when. Of equal instants, what was put in first comes first.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

#[derive(Debug)]
pub(crate) struct Calendar<E> {
    entries: BTreeMap<(DateTime<Utc>, u64), E>,
    count: u64,
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), count: 0 }
    }
}

impl<E> Calendar<E> {
    pub(crate) fn put(&mut self, at: DateTime<Utc>, event: E) {
        self.count += 1;
        self.entries.insert((at, self.count), event);
    }

    pub(crate) fn next(&self) -> Option<DateTime<Utc>> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// The next event that is due.
    pub(crate) fn take(&mut self, now: DateTime<Utc>) -> Option<E> {
        let (key, _) = self.entries.first_key_value().filter(|((at, _), _)| *at <= now)?;
        let key = *key;
        self.entries.remove(&key)
    }
}
