//! The sensors of a worker's shards in memory: by group, by due time, by timeout.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::canonical::PokeContext;
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::lease::TaskNo;
use crate::sensor::{SensorRecord, SensorState, next_poke};

/// What sensors of one group have in common.
pub(super) type Target = (SensorKind, PokeContext);

/// Sensors that share one poke.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) fingerprint: Fingerprint,
    pub(super) members: BTreeMap<TaskNo, SensorRecord>,
    due: DateTime<Utc>,
    looked_at: Option<DateTime<Utc>>,
}

/// All sensors that this worker is responsible for.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: HashMap<Target, Group>,
    target_of: HashMap<TaskNo, Target>,
    due: BTreeSet<(DateTime<Utc>, Target)>,
    timeouts: BTreeSet<(DateTime<Utc>, TaskNo)>,
}

impl Groups {
    pub(super) fn sensors(&self) -> usize {
        self.target_of.len()
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn get(&self, target: &Target) -> Option<&Group> {
        self.groups.get(target)
    }

    /// Takes a sensor as the store has it now: puts it in, replaces it, or takes it out.
    ///
    /// `looked_at` is when its target is known to have been looked at last by another worker, if it is. The group is due
    /// at the next grid point of the sensor's interval after the last look; at once if nobody looked, or if that has passed.
    pub(super) fn learn(
        &mut self,
        sensor: SensorRecord,
        looked_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
        floor: Duration,
    ) {
        self.remove(sensor.no);
        if sensor.state != SensorState::Waiting {
            return;
        }
        let target = (sensor.kind.clone(), sensor.context.clone());
        self.timeouts.insert((sensor.times_out_at, sensor.no));
        self.target_of.insert(sensor.no, target.clone());
        let group = self.groups.entry(target.clone()).or_insert_with(|| Group {
            fingerprint: sensor.fingerprint,
            members: BTreeMap::new(),
            due: DateTime::<Utc>::MAX_UTC,
            looked_at: None,
        });
        group.looked_at = group.looked_at.max(looked_at);
        let interval = sensor.settings.interval.max(floor);
        let poke = group.looked_at.map_or(now, |at| next_poke(group.fingerprint, interval, at).max(now));
        let due = group.due.min(poke).min(sensor.times_out_at);
        group.members.insert(sensor.no, sensor);
        self.due.remove(&(group.due, target.clone()));
        group.due = due;
        self.due.insert((due, target));
    }

    /// Forgets one sensor.
    pub(super) fn remove(&mut self, no: TaskNo) {
        let Some(target) = self.target_of.remove(&no) else { return };
        let Some(group) = self.groups.get_mut(&target) else { return };
        if let Some(sensor) = group.members.remove(&no) {
            self.timeouts.remove(&(sensor.times_out_at, no));
        }
        if group.members.is_empty() {
            self.due.remove(&(group.due, target.clone()));
            self.groups.remove(&target);
        }
    }

    /// Forgets the sensors whose fingerprint is not the worker's any more.
    pub(super) fn retain(&mut self, mine: impl Fn(Fingerprint) -> bool) {
        let lost: Vec<TaskNo> = self
            .groups
            .values()
            .filter(|group| !mine(group.fingerprint))
            .flat_map(|group| group.members.keys().copied())
            .collect();
        for no in lost {
            self.remove(no);
        }
    }

    /// The groups that are due.
    pub(super) fn due(&self, now: DateTime<Utc>) -> Vec<Target> {
        self.due.iter().take_while(|(due, _)| *due <= now).map(|(_, target)| target.clone()).collect()
    }

    /// Sets the next due time of a group that was looked at now: by the smallest interval of its members, but not below
    /// `floor`, and for a last look when the first of them times out.
    pub(super) fn looked_at(&mut self, target: &Target, now: DateTime<Utc>, floor: Duration) {
        let Some(group) = self.groups.get_mut(target) else { return };
        let interval = group.members.values().map(|sensor| sensor.settings.interval).min().unwrap_or(floor);
        self.due.remove(&(group.due, target.clone()));
        group.looked_at = Some(now);
        let timeout = group.members.values().map(|sensor| sensor.times_out_at).min();
        let poke = next_poke(group.fingerprint, interval.max(floor), now);
        group.due = timeout.map_or(poke, |at| poke.min(at));
        self.due.insert((group.due, target.clone()));
    }

    /// The sensors that have timed out.
    pub(super) fn timed_out(&self, now: DateTime<Utc>) -> Vec<SensorRecord> {
        let due = self.timeouts.iter().take_while(|(at, _)| *at <= now);
        due.filter_map(|(_, no)| self.groups.get(self.target_of.get(no)?)?.members.get(no).cloned()).collect()
    }

    /// The earliest due time or timeout.
    pub(super) fn next_due(&self) -> Option<DateTime<Utc>> {
        let poke = self.due.first().map(|(at, _)| *at);
        let timeout = self.timeouts.first().map(|(at, _)| *at);
        poke.into_iter().chain(timeout).min()
    }
}
