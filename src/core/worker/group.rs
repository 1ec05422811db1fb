//! The places of one set of queues, and when to ask for tasks to fill them.

use crate::time::Timestamp;

/// A group of places.
#[derive(Debug)]
pub(super) struct Group {
    places: usize,
    pub(super) taken: usize,
    /// Whether there may be work that was not asked for, or more of it than there were places.
    has_news: bool,
    /// Whether it asks right now.
    pub(super) is_asking: bool,
    /// When it asks even if there is no news.
    due: Option<Timestamp>,
    /// When it must record again which queues it serves, even if no place is free.
    tells_at: Option<Timestamp>,
    /// It does not ask before this.
    pub(super) pauses_until: Option<Timestamp>,
}

impl Group {
    /// Creates a group of free places that asks at once.
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            taken: 0,
            has_news: true,
            is_asking: false,
            due: None,
            tells_at: None,
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

    /// Returns how many tasks to ask for, if it should ask now.
    pub(super) fn asks(&mut self, now: Timestamp) -> Option<usize> {
        if self.is_asking {
            return None;
        }
        let is_past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let pauses = self.pauses_until.is_some_and(|until| now < until);
        let asks = self.free() > 0 && !pauses && (self.has_news || is_past(self.due));
        if !asks && !is_past(self.tells_at) {
            return None;
        }
        (self.has_news, self.is_asking) = (false, true);
        Some(if pauses { 0 } else { self.free() })
    }

    /// Notes an answer. `is_filled` if it got as many tasks as it asked for: there may be more.
    pub(super) fn answered(&mut self, is_filled: bool, due: Timestamp, tells_at: Option<Timestamp>) {
        self.is_asking = false;
        self.has_news |= is_filled;
        (self.due, self.tells_at) = (Some(due), tells_at);
    }

    /// Notes that its request failed.
    pub(super) fn failed(&mut self) {
        (self.is_asking, self.has_news) = (false, true);
    }

    pub(super) fn next_ask(&self) -> Option<Timestamp> {
        let asks_at = match (self.free() > 0, self.has_news) {
            (false, _) => None,
            (true, true) => Some(self.pauses_until.unwrap_or(Timestamp::MIN)),
            (true, false) => self.due.max(self.pauses_until),
        };
        asks_at.into_iter().chain(self.tells_at).min()
    }
}
