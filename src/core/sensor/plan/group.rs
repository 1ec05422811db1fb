//! One poke group.

use std::time::Duration;

use super::members::NOBODY;
use crate::canonical::PokeContext;
use crate::fingerprint::Fingerprint;
use crate::sensor::{Outage, Terms};
use crate::time::Timestamp;

/// A group: its index, and which of the groups that used the index it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GroupRef {
    pub(super) at: u32,
    pub(super) incarnation: u64,
}

#[cfg(test)]
impl GroupRef {
    /// Returns a reference for tests of what only passes references on.
    pub(crate) fn numbered(at: u32) -> Self {
        Self { at, incarnation: 0 }
    }

    pub(crate) fn number(self) -> u32 {
        self.at
    }
}

/// The state of a group's poke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for its due time.
    Resting,
    /// It is being poked: it was due, and its poke has not returned yet. It has no due time.
    Asked,
    /// Its poke hangs.
    Hung,
}

/// Sensors that share one poke.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kind: u32,
    pub(super) context: PokeContext,
    pub(super) phase: Phase,
    /// How many sensors share it. 0 while it only waits for a poke to return.
    pub(super) members: u32,
    pub(super) outage: Option<Outage>,
    /// At or before the earliest timeout of its members, in microseconds.
    pub(super) timeout: i64,
    /// At or after the latest timeout of its members, in microseconds.
    pub(super) last_timeout: i64,
    /// The smallest of its members.
    pub(super) poke_timeout: Option<Duration>,
    /// When it is due, in microseconds. Never while it is being poked.
    pub(super) due: i64,
    /// The smallest of its members, when they registered.
    pub(super) interval: Duration,
    /// A member's interval grows.
    pub(super) grows: bool,
    /// A member has left that may have been the earliest, the smallest or the only one that grows.
    pub(super) stale: bool,
    /// True if a sensor registered since its last poke began, and waits for a first poke.
    pub(super) joined: bool,
    pub(super) first: u32,
    /// Another group with the same fingerprint.
    pub(super) twin: u32,
    pub(super) fingerprint: Fingerprint,
    pub(super) incarnation: u64,
    /// What a poke costs, in microseconds; 0 if it was not poked yet.
    pub(super) cost: u32,
    /// When it was last due, as far as it concerns its present members.
    pub(super) looked_at: Option<Timestamp>,
    /// When its last poke began.
    pub(super) asked_at: Option<Timestamp>,
    /// While it is being poked: an instant at or before the one since which a member waits only for its last
    /// poke, in microseconds. Never if it is not being poked, or once all such members were set to end.
    pub(super) overdue: i64,
}

impl Group {
    /// Creates a group without members.
    pub(super) fn new(
        fingerprint: Fingerprint,
        kind: u32,
        context: PokeContext,
        incarnation: u64,
        twin: u32,
    ) -> Self {
        Self {
            kind,
            context,
            phase: Phase::Resting,
            members: 0,
            outage: None,
            timeout: i64::MAX,
            last_timeout: i64::MIN,
            poke_timeout: None,
            due: i64::MAX,
            interval: Duration::MAX,
            grows: false,
            stale: false,
            joined: false,
            first: NOBODY,
            twin,
            fingerprint,
            incarnation,
            cost: 0,
            looked_at: None,
            asked_at: None,
            overdue: i64::MAX,
        }
    }

    pub(super) fn add(&mut self, terms: &Terms) {
        let settings = &terms.settings;
        self.timeout = self.timeout.min(terms.times_out_at.as_micros());
        self.last_timeout = self.last_timeout.max(terms.times_out_at.as_micros());
        self.interval = self.interval.min(settings.interval);
        self.grows |= settings.max_interval.is_some();
        self.poke_timeout = self.poke_timeout.into_iter().chain(settings.poke_timeout).min();
    }

    /// Forgets what its members have in common.
    pub(super) fn clear(&mut self) {
        (self.timeout, self.last_timeout) = (i64::MAX, i64::MIN);
        (self.interval, self.grows) = (Duration::MAX, false);
        (self.poke_timeout, self.stale) = (None, false);
        if self.members == 0 {
            (self.due, self.looked_at, self.first) = (i64::MAX, None, NOBODY);
            self.joined = false;
        }
    }
}
