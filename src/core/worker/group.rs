//! The places for one set of queues, and when to ask for tasks to fill them.

use std::time::Duration;

use crate::time::Timestamp;

/// The longest time that free places wait for others that are about to be free. Most stores need less to
/// store ends.
pub(super) const LONGEST_HOLD: Duration = Duration::from_millis(10);

/// A group of places that serve the same queues.
#[derive(Debug)]
pub(super) struct Group {
    places: usize,
    pub(super) taken: usize,
    /// How many of the taken places become free once their ends are stored: their handlers have returned.
    pub(super) ending: usize,
    /// Since when free places have waited for the ending ones.
    held_since: Option<Timestamp>,
    /// True if there may be work that was not asked for, or more work than there were places.
    has_news: bool,
    /// True if a request is in progress.
    pub(super) is_asking: bool,
    /// When it asks even without news.
    due: Option<Timestamp>,
    /// When it must record again which queues it serves, even if no place is free.
    announces_at: Option<Timestamp>,
    /// It does not ask before this instant.
    pub(super) pauses_until: Option<Timestamp>,
}

impl Group {
    /// Creates a group of free places that asks at once.
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            taken: 0,
            ending: 0,
            held_since: None,
            has_news: true,
            is_asking: false,
            due: None,
            announces_at: None,
            pauses_until: None,
        }
    }

    pub(super) fn news(&mut self) {
        self.has_news = true;
    }

    fn free(&self) -> usize {
        self.places.saturating_sub(self.taken)
    }

    pub(super) fn wants_to_ask(&self) -> bool {
        self.has_news && self.free() > 0
    }

    /// Returns how many tasks to ask for, or `None` if it should not ask now. With `may_hold`, free places
    /// may wait for places that are about to be free.
    pub(super) fn asks(&mut self, now: Timestamp, may_hold: bool) -> Option<usize> {
        if self.is_asking {
            return None;
        }
        let is_past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let pauses = self.pauses_until.is_some_and(|until| now < until);
        let wants = self.free() > 0 && !pauses && (self.has_news || is_past(self.due));
        let asks = wants && !(may_hold && self.holds(now));
        if !asks && !is_past(self.announces_at) {
            return None;
        }
        (self.has_news, self.is_asking, self.held_since) = (false, true, None);
        Some(if pauses { 0 } else { self.free() })
    }

    /// Returns true if it should wait for the places whose ends are being stored, because they outnumber the
    /// free ones. One request for all of them costs the store hardly more than a request for a few.
    fn holds(&mut self, now: Timestamp) -> bool {
        // A clock that was set back must not make it wait longer.
        let since = self.held_since.map_or(now, |since| since.min(now));
        self.is_outnumbered() && now < *self.held_since.insert(since) + LONGEST_HOLD
    }

    fn is_outnumbered(&self) -> bool {
        self.free() < self.ending
    }

    /// Records a response. `is_filled` means that it contained as many tasks as were asked for, so there may
    /// be more.
    pub(super) fn answered(&mut self, is_filled: bool, due: Timestamp, announces_at: Option<Timestamp>) {
        self.is_asking = false;
        self.has_news |= is_filled;
        (self.due, self.announces_at) = (Some(due), announces_at);
    }

    /// Records that a request failed.
    pub(super) fn failed(&mut self) {
        (self.is_asking, self.has_news) = (false, true);
    }

    pub(super) fn next_ask(&self) -> Option<Timestamp> {
        let held = self.held_since.filter(|_| self.is_outnumbered()).map(|since| since + LONGEST_HOLD);
        let not_before = self.pauses_until.max(held);
        let asks_at = match (self.free() > 0, self.has_news) {
            (false, _) => None,
            (true, true) => Some(not_before.unwrap_or(Timestamp::MIN)),
            (true, false) => self.due.max(not_before),
        };
        asks_at.into_iter().chain(self.announces_at).min()
    }
}
