//! One poke group.

use std::time::Duration;

use super::slab::NONE;
use crate::canonical::PokeContext;
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::sensor::{Outage, Terms};
use crate::time::Timestamp;

/// A reference to a group. The incarnation tells groups apart that have used the same index. It may repeat, because a
/// group keeps its index until its poke returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GroupRef {
    pub(super) at: u32,
    pub(super) incarnation: u32,
}

#[cfg(test)]
impl GroupRef {
    /// Returns a reference for tests of code that only passes references on.
    pub(crate) fn numbered(at: u32) -> Self {
        Self { at, incarnation: 0 }
    }

    pub(crate) fn number(self) -> u32 {
        self.at
    }
}

/// What a group is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for its due time.
    Resting,
    /// It is being poked: it was due, and its poke has not returned. It has no due time.
    Asked,
    /// Its poke hangs.
    Hung,
}

/// Sensors that share one poke.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kind: SensorKind,
    pub(super) context: PokeContext,
    pub(super) phase: Phase,
    /// The number of sensors. It is 0 while the group only waits for its poke to return.
    pub(super) members: u32,
    /// One of its members, or [`NONE`]: see [`Members`](super::members::Members).
    pub(super) ring: u32,
    pub(super) outage: Option<Outage>,
    /// An instant no later than the members' earliest timeout.
    pub(super) timeout: Timestamp,
    /// An instant no earlier than the members' latest timeout.
    pub(super) last_timeout: Timestamp,
    /// The smallest poke timeout of the members.
    pub(super) poke_timeout: Option<Duration>,
    /// When the group is due. `Timestamp::MAX` while it is being poked.
    pub(super) due: Timestamp,
    /// The smallest initial interval of the members.
    pub(super) interval: Duration,
    /// True if a member's interval grows.
    pub(super) grows: bool,
    /// True if a member has left that may have had the earliest timeout, the smallest value or the only
    /// growing interval.
    pub(super) stale: bool,
    /// True if a sensor has registered since the last poke began and waits for its first poke.
    pub(super) joined: bool,
    pub(super) fingerprint: Fingerprint,
    pub(super) incarnation: u32,
    /// The cost of a poke, in microseconds; 0 if the group has not been poked yet.
    pub(super) cost: u32,
    /// When the group was last due, as far as that concerns its present members; `Timestamp::MIN` if it was not.
    looked: Timestamp,
    /// When the last poke began; `Timestamp::MIN` before the first one.
    pub(super) asked_at: Timestamp,
    /// While the group is being poked: an instant no later than the one since which a member waits only for
    /// its last poke. `Timestamp::MAX` if it is not being poked, or once all such members are set to end.
    pub(super) overdue: Timestamp,
}

impl Group {
    /// Creates a group without members.
    pub(super) fn new(
        fingerprint: Fingerprint,
        kind: SensorKind,
        context: PokeContext,
        incarnation: u32,
    ) -> Self {
        Self {
            kind,
            context,
            phase: Phase::Resting,
            members: 0,
            ring: NONE,
            outage: None,
            timeout: Timestamp::MAX,
            last_timeout: Timestamp::MIN,
            poke_timeout: None,
            due: Timestamp::MAX,
            interval: Duration::MAX,
            grows: false,
            stale: false,
            joined: false,
            fingerprint,
            incarnation,
            cost: 0,
            looked: Timestamp::MIN,
            asked_at: Timestamp::MIN,
            overdue: Timestamp::MAX,
        }
    }

    pub(super) fn looked_at(&self) -> Option<Timestamp> {
        (self.looked > Timestamp::MIN).then_some(self.looked)
    }

    pub(super) fn set_looked_at(&mut self, looked: Option<Timestamp>) {
        self.looked = looked.unwrap_or(Timestamp::MIN);
    }

    pub(super) fn add(&mut self, terms: &Terms) {
        let settings = &terms.settings;
        self.timeout = self.timeout.min(terms.times_out_at);
        self.last_timeout = self.last_timeout.max(terms.times_out_at);
        self.interval = self.interval.min(settings.interval);
        self.grows |= settings.max_interval.is_some();
        self.poke_timeout = self.poke_timeout.into_iter().chain(settings.poke_timeout).min();
    }

    /// Resets everything that is computed from the members.
    pub(super) fn clear(&mut self) {
        (self.timeout, self.last_timeout) = (Timestamp::MAX, Timestamp::MIN);
        (self.interval, self.grows) = (Duration::MAX, false);
        (self.poke_timeout, self.stale) = (None, false);
        if self.members == 0 {
            (self.due, self.looked, self.joined) = (Timestamp::MAX, Timestamp::MIN, false);
        }
    }
}
