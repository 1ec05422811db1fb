//! The ends that wait to be stored.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lease::LeaseRef;
use crate::time::Timestamp;

/// The most ends that one call stores.
const MOST: usize = 512;

/// Ends in the order in which they came. Those of a call that failed go to the back.
#[derive(Debug)]
pub(super) struct Ends<E> {
    gather: Duration,
    waiting: VecDeque<(LeaseRef, E)>,
    /// Since when the first of them has waited.
    since: Option<Timestamp>,
    /// How many the next call stores at most.
    limit: usize,
}

impl<E> Ends<E> {
    pub(super) fn new(gather: Duration) -> Self {
        Self { gather, waiting: VecDeque::new(), since: None, limit: MOST }
    }

    pub(super) fn push(&mut self, now: Timestamp, lease: LeaseRef, end: E) {
        self.since.get_or_insert(now);
        self.waiting.push_back((lease, end));
    }

    /// Takes the ends of the next call, if the first has waited long enough, if there are enough of them, or
    /// in a `hurry`.
    pub(super) fn take(&mut self, now: Timestamp, hurry: bool) -> Vec<(LeaseRef, E)> {
        let is_due = self.since.is_some_and(|since| since + self.gather <= now);
        // A clock that was set back must not make an end wait longer.
        let is_set_back = self.since.is_some_and(|since| now < since);
        if !(is_due || is_set_back || hurry || self.waiting.len() >= self.limit) {
            return Vec::new();
        }
        let taken: Vec<_> = self.waiting.drain(..self.limit.min(self.waiting.len())).collect();
        if self.waiting.is_empty() {
            self.since = None;
        }
        taken
    }

    /// Notes that a call succeeded.
    pub(super) fn succeeded(&mut self) {
        self.limit = (self.limit * 2).min(MOST);
    }

    /// Puts the ends of a call that failed behind the others, and halves the next call. So ends that are too
    /// large for one call are stored in several, and one that the store refuses does not delay the rest.
    pub(super) fn failed(&mut self, now: Timestamp, ends: Vec<(LeaseRef, E)>) {
        self.limit = (ends.len() / 2).max(1);
        // These have already waited to be gathered.
        self.since = Some(now - self.gather);
        self.waiting.extend(ends);
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.since.map(|since| since + self.gather)
    }
}
