//! Which sensors a worker knows, and which groups they share.

use super::group::{Common, Member, Phase};
use super::{Arrival, FEW, GroupRef, Plan, shrink};
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{SensorRecord, SensorState, Terms};
use crate::time::Timestamp;

impl Plan {
    /// Applies a sensor's state in the store: adds, replaces or removes it.
    ///
    /// A registration may be read twice, as a change and with its shard. It keeps the turn that first read it, because a
    /// poke that began since then answers it too.
    pub(crate) fn learn(&mut self, arrival: Arrival, now: Timestamp) {
        let lease = arrival.sensor.lease_ref();
        let waits = arrival.sensor.state == SensorState::Waiting;
        if let Some(known) = self.members.get_mut(&lease.id).filter(|known| waits && known.lease == lease) {
            known.doubted = false;
            return;
        }
        self.remove(lease.id);
        if waits {
            self.join(arrival, now);
        }
    }

    /// Adds a sensor to its group. That is due at once, but no sooner than [`super::Rules::min_interval`] after its last
    /// look. If the sensor was taken over, or its target was unreachable last time, the group waits for the next grid
    /// point.
    fn join(&mut self, arrival: Arrival, now: Timestamp) {
        let Arrival { mut sensor, left_at, whole, served } = arrival;
        // All sensors share one copy of the name of their kind.
        if let Some((kind, _)) = self.by_kind.get_key_value(&sensor.kind) {
            sensor.kind = kind.clone();
        }
        let (lease, terms, rules) = (sensor.lease_ref(), Terms::from(&sensor), self.rules);
        // A sensor that was taken over counts as looked at until its shard was given up, unless it registered later,
        // or is so young that its first look may be missing. So a restart does not poke all targets at once, and a due
        // time that came while no one held the shard is not skipped.
        let is_old =
            |left: &Timestamp| terms.registered_at < *left && now >= terms.registered_at + rules.lease;
        let looked_at = left_at.filter(is_old);
        let Some(group) = self.groups.of_sensor(&sensor) else { return };
        let (sensors, groups) = self.by_kind.entry(sensor.kind.clone()).or_default();
        *sensors += 1;
        if group.members.is_empty() {
            *groups += 1;
            self.unwanted -= usize::from(matches!(group.phase, Phase::Asked(_)));
            let looked = self.looks.get(&sensor.fingerprint).copied();
            group.looked_at = looked.filter(|looked| now < *looked + rules.min_interval);
            let over_since = match left_at {
                // No one looks at the target, so nothing is known of it. Who serves the kind next must not find the
                // outage.
                _ if !served => Some(now),
                // Whether it went on meanwhile is not known. The first failed look must not fail sensors at once that
                // have waited since before.
                Some(left_at) if now > left_at + rules.handed_on() => Some(left_at),
                _ => None,
            };
            group.outage = self.stored.found_again(sensor.fingerprint, over_since);
            self.outages += usize::from(group.outage.is_some());
        }
        // All members share one copy of the text.
        let record = whole.then(|| Box::new(SensorRecord { context: group.context.clone(), ..sensor }));
        let (since, place) = (self.turn, group.members.len());
        let member = Member { lease, terms, since, group: group.of, place, doubted: false, record };
        self.members.insert(lease.id, Box::new(member));
        group.members.push(lease.id);
        group.looked_at = group.looked_at.max(looked_at);
        group.joined |= looked_at.is_none();
        group.common.add(&terms);
        if let Phase::Asked(asked) = group.phase {
            let overdue = asked.max(terms.times_out_at).as_micros().min(group.overdue);
            self.overdue.set(group.of, &mut group.overdue, overdue);
        } else {
            // The due time only becomes earlier here: other members may wait for an earlier one.
            let due = group.first_look(&terms, looked_at.is_some(), now, rules).min(group.due);
            self.due.set(group.of, &mut group.due, due);
        }
    }

    /// Forgets one sensor.
    pub(super) fn remove(&mut self, id: TaskId) {
        let Some(member) = self.members.remove(&id) else { return };
        shrink(&mut self.members);
        let Some(group) = self.groups.get_mut(member.group) else { return };
        group.members.swap_remove(member.place);
        if let Some(moved) = group.members.get(member.place).and_then(|id| self.members.get_mut(id)) {
            moved.place = member.place;
        }
        if group.members.capacity() > 4 * group.members.len().max(FEW) {
            group.members.shrink_to(2 * group.members.len());
        }
        group.common.stale = true;
        let is_empty = group.members.is_empty();
        if let Some((sensors, groups)) = self.by_kind.get_mut(&group.kind) {
            (*sensors, *groups) = (*sensors - 1, *groups - usize::from(is_empty));
            if *sensors == 0 {
                self.by_kind.remove(&group.kind);
            }
        }
        if is_empty {
            self.desert(member.group);
        }
    }

    /// Removes a group without members from all orders. Forgets it, unless its poke has not returned.
    fn desert(&mut self, of: GroupRef) {
        self.set_outage(of, None);
        let Some(group) = self.groups.get_mut(of) else { return };
        self.due.set(of, &mut group.due, i64::MAX);
        self.overdue.set(of, &mut group.overdue, i64::MAX);
        if let Some(looked) = group.looked_at.take() {
            let known = self.looks.entry(of.fingerprint).or_insert(looked);
            *known = looked.max(*known);
        }
        (group.common, group.joined) = (Common::NONE, false);
        match group.phase {
            Phase::Asked(_) => self.unwanted += 1,
            Phase::Resting => self.groups.forget(of),
            Phase::Hung => {}
        }
    }

    /// Returns true if this registration is in memory.
    pub(crate) fn knows(&self, lease: LeaseRef) -> bool {
        self.members.get(&lease.id).is_some_and(|member| member.lease == lease)
    }

    /// Returns the whole of this registration, if a log needs it.
    pub(crate) fn whole(&self, lease: LeaseRef) -> Option<&SensorRecord> {
        self.members.get(&lease.id).filter(|member| member.lease == lease)?.record.as_deref()
    }

    /// Returns how many sensors share the target of this one, including it once it is known.
    pub(crate) fn sharing(&self, sensor: &SensorRecord) -> usize {
        let groups = self.groups.with(sensor.fingerprint);
        groups.iter().find(|group| group.is_of(sensor)).map_or(0, |group| group.members.len())
    }

    /// Doubts the sensors of these shards, until they are found waiting again.
    pub(crate) fn doubt(&mut self, of: impl Fn(u32) -> bool) {
        let rules = self.rules;
        for member in self.members.values_mut() {
            member.doubted |= of(rules.shard(member.group.fingerprint));
        }
    }

    /// Returns the sensors of these shards that were doubted and not found waiting since.
    pub(crate) fn doubted(&self, of: impl Fn(u32) -> bool) -> Vec<LeaseRef> {
        let doubted = self.members.values().filter(|member| member.doubted);
        let doubted = doubted.filter(|member| of(self.rules.shard(member.group.fingerprint)));
        doubted.map(|member| member.lease).collect()
    }
}
