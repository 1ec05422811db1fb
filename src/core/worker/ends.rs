//! The ends of attempts that wait to be stored.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lease::LeaseRef;
use crate::time::Timestamp;

/// The most ends that one call stores.
const MOST: usize = 512;

/// The longest time that an end waits while handlers that were granted together are still being started.
/// Starting them takes far less, unless the host's runtime is blocked.
const STARTING: Duration = Duration::from_millis(2);

/// Ends in the order in which they came. The ends of a failed call go to the back.
#[derive(Debug)]
pub(super) struct Ends<E> {
    gather: Duration,
    waiting: VecDeque<(LeaseRef, E)>,
    /// Since when the first of them has waited.
    since: Option<Timestamp>,
    /// The most ends that the next call stores.
    limit: usize,
    /// True if handlers of one grant are still being started. If they are short, most ends come from the
    /// first of them.
    is_starting: bool,
}

impl<E> Ends<E> {
    pub(super) fn new(gather: Duration) -> Self {
        Self { gather, waiting: VecDeque::new(), since: None, limit: MOST, is_starting: false }
    }

    pub(super) fn set_starting(&mut self, is_starting: bool) {
        self.is_starting = is_starting;
    }

    pub(super) fn push(&mut self, now: Timestamp, lease: LeaseRef, end: E) {
        self.since.get_or_insert(now);
        self.waiting.push_back((lease, end));
    }

    /// Takes the ends for the next call if the first has waited long enough, if there are enough of them, or
    /// if `hurry` is set.
    pub(super) fn take(&mut self, now: Timestamp, hurry: bool) -> Vec<(LeaseRef, E)> {
        if !(self.are_due(now) || hurry) {
            return Vec::new();
        }
        let taken: Vec<_> = self.waiting.drain(..self.limit.min(self.waiting.len())).collect();
        if self.waiting.is_empty() {
            self.since = None;
        }
        taken
    }

    fn are_due(&self, now: Timestamp) -> bool {
        let is_due = self.next_due().is_some_and(|due| due <= now);
        // A clock that was set back must not make an end wait longer.
        let is_set_back = self.since.is_some_and(|since| now < since);
        is_due || is_set_back || self.waiting.len() >= self.limit
    }

    /// Returns true if the loop that stores ends has something to do, or must learn when it will.
    pub(super) fn call(&self, now: Timestamp) -> bool {
        self.waiting.len() == 1 || self.are_due(now)
    }

    /// Records that a call succeeded.
    pub(super) fn succeeded(&mut self) {
        self.limit = (self.limit * 2).min(MOST);
    }

    /// Puts the ends of a failed call behind the others, and halves the next call. So ends that are too large
    /// for one call are stored in several calls, and an end that the store refuses does not delay the rest.
    pub(super) fn failed(&mut self, now: Timestamp, ends: Vec<(LeaseRef, E)>) {
        self.limit = (ends.len() / 2).max(1);
        // These ends have already waited to be gathered.
        self.since = Some(now - self.gather);
        self.waiting.extend(ends);
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let wait = if self.is_starting { self.gather.max(STARTING) } else { self.gather };
        self.since.map(|since| since + wait)
    }
}
