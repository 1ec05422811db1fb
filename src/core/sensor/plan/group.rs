//! Poke groups, and the sensors that share them.

use std::collections::HashMap;
use std::time::Duration;

use crate::canonical::PokeContext;
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{Outage, SensorRecord, Terms};
use crate::time::Timestamp;

/// A group: the number of those founded before it, and the fingerprint of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupRef {
    pub(super) number: u64,
    pub(super) fingerprint: Fingerprint,
}

#[cfg(test)]
impl GroupRef {
    /// Returns a reference for tests of what only passes references on.
    pub(crate) fn numbered(number: u32) -> Self {
        Self { number: number.into(), fingerprint: Fingerprint(0) }
    }

    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }
}

/// The state of a group's poke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for its due time.
    Resting,
    /// It was due at that instant, and its answer has not come yet. It has no due time.
    Asked(Timestamp),
    /// Its poke hangs.
    Hung,
}

/// One sensor.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) lease: LeaseRef,
    pub(super) terms: Terms,
    /// The turn that read it. Outcomes of pokes that began earlier do not concern it.
    pub(super) since: u64,
    pub(super) group: GroupRef,
    /// Its index in [`Group::members`].
    pub(super) place: usize,
    /// Its shard is being read again, and it was not found waiting yet.
    pub(super) doubted: bool,
    /// The whole sensor, if a log needs it.
    pub(super) record: Option<Box<SensorRecord>>,
}

/// Sensors that share one poke.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) of: GroupRef,
    pub(super) kind: SensorKind,
    pub(super) context: PokeContext,
    pub(super) phase: Phase,
    /// The sensors that share it, in no order. None while it only waits for a poke to return.
    pub(super) members: Vec<TaskId>,
    pub(super) common: Common,
    pub(super) outage: Option<Outage>,
    /// When it is due, in microseconds. While it is asked: never.
    pub(super) due: i64,
    /// While it is asked, at or before the instant since which a member waits for nothing but its last look, in
    /// microseconds. Otherwise, and if all such members are told to end: never.
    pub(super) overdue: i64,
    /// When it was last due, as far as it concerns its present members.
    pub(super) looked_at: Option<Timestamp>,
    /// A sensor registered since it was last asked, and waits for a first look.
    pub(super) joined: bool,
    /// What a poke costs, in microseconds; 0 if it was not poked yet.
    pub(super) cost: u32,
}

/// What the members of a group have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    /// At or before the earliest timeout, in microseconds.
    pub(super) timeout: i64,
    /// At or after the latest timeout, in microseconds.
    pub(super) last_timeout: i64,
    /// The smallest.
    pub(super) poke_timeout: Option<Duration>,
    /// The smallest, when they registered.
    pub(super) interval: Duration,
    /// A member's interval grows.
    pub(super) grows: bool,
    /// A member has left that may have been the earliest, the smallest or the only one that grows.
    pub(super) stale: bool,
}

impl Common {
    /// Of no members.
    pub(super) const NONE: Self = Self {
        timeout: i64::MAX,
        last_timeout: i64::MIN,
        poke_timeout: None,
        interval: Duration::MAX,
        grows: false,
        stale: false,
    };

    pub(super) fn add(&mut self, terms: &Terms) {
        let settings = &terms.settings;
        self.timeout = self.timeout.min(terms.times_out_at.as_micros());
        self.last_timeout = self.last_timeout.max(terms.times_out_at.as_micros());
        self.interval = self.interval.min(settings.interval);
        self.grows |= settings.max_interval.is_some();
        self.poke_timeout = self.poke_timeout.into_iter().chain(settings.poke_timeout).min();
    }
}

/// Groups by their target's fingerprint. Several targets may have one.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_print: HashMap<Fingerprint, Vec<Group>>,
    founded: u64,
}

impl Groups {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.by_print.values().flatten()
    }

    /// Returns the groups whose target has this fingerprint.
    pub(super) fn with(&self, fingerprint: Fingerprint) -> &[Group] {
        self.by_print.get(&fingerprint).map_or(&[], Vec::as_slice)
    }

    pub(super) fn get(&self, of: GroupRef) -> Option<&Group> {
        self.with(of.fingerprint).iter().find(|group| group.of == of)
    }

    pub(super) fn get_mut(&mut self, of: GroupRef) -> Option<&mut Group> {
        self.by_print.get_mut(&of.fingerprint)?.iter_mut().find(|group| group.of == of)
    }

    /// Returns the group of this sensor. Founds one without members if there is none.
    pub(super) fn of_sensor(&mut self, sensor: &SensorRecord) -> Option<&mut Group> {
        let groups = self.by_print.entry(sensor.fingerprint).or_default();
        if !groups.iter().any(|group| group.is_of(sensor)) {
            self.founded += 1;
            // Nearly all fingerprints have one group, so room for more would be wasted a million times.
            groups.reserve_exact(1);
            groups.push(Group {
                of: GroupRef { number: self.founded, fingerprint: sensor.fingerprint },
                kind: sensor.kind.clone(),
                context: sensor.context.clone(),
                phase: Phase::Resting,
                members: Vec::new(),
                common: Common::NONE,
                outage: None,
                due: i64::MAX,
                overdue: i64::MAX,
                looked_at: None,
                joined: false,
                cost: 0,
            });
        }
        groups.iter_mut().find(|group| group.is_of(sensor))
    }

    pub(super) fn forget(&mut self, of: GroupRef) {
        let Some(groups) = self.by_print.get_mut(&of.fingerprint) else { return };
        groups.retain(|group| group.of != of);
        if groups.is_empty() {
            self.by_print.remove(&of.fingerprint);
            super::shrink(&mut self.by_print);
        }
    }
}

impl Group {
    pub(super) fn is_of(&self, sensor: &SensorRecord) -> bool {
        self.kind == sensor.kind && self.context == sensor.context
    }
}
