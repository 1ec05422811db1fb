//! The poke groups of a worker's shards in memory: by target, by due time, by timeout.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::group::{Group, GroupRef, Phase, Rules};
use super::members::{Member, Members, NOBODY};
use super::slab::{Slab, shrink};
use crate::fingerprint::Fingerprint;
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{Outage, SensorRecord, SensorState, Terms, backed_off, interval_at, next_poke};
use crate::time;

/// A sensor to be put in.
pub(super) struct Arrival {
    pub(super) sensor: SensorRecord,
    pub(super) kind: u32,
    /// When its target is known to have been looked at last by another worker, if it is.
    pub(super) looked_at: Option<DateTime<Utc>>,
    /// The tick that learned of it.
    pub(super) tick: u64,
    /// Whether a log wants the whole sensor.
    pub(super) whole: bool,
}

/// All sensors that this worker is responsible for.
#[derive(Debug, Default)]
pub(super) struct Groups {
    slab: Slab<Group>,
    members: Members,
    by_print: HashMap<Fingerprint, u32>,
    due: BTreeSet<(i64, u32)>,
    timeouts: BTreeSet<(i64, u32)>,
    incarnations: u64,
    /// Groups whose target could not be looked at last time.
    outages: usize,
    /// Groups that are kept only until their poke returns.
    deserted: usize,
}

impl Groups {
    pub(super) fn sensors(&self) -> usize {
        self.members.len()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.deserted
    }

    /// Groups without members, whose poke is still to return or to be made.
    pub(super) fn deserted(&self) -> usize {
        self.deserted
    }

    pub(super) fn outages(&self) -> usize {
        self.outages
    }

    pub(super) fn get(&self, group: GroupRef) -> Option<&Group> {
        self.slab.get(group.at).filter(|found| found.incarnation == group.incarnation)
    }

    fn get_mut(&mut self, group: GroupRef) -> Option<&mut Group> {
        self.slab.get_mut(group.at).filter(|found| found.incarnation == group.incarnation)
    }

    /// The numbers of the kinds that its groups are of.
    pub(super) fn kinds(&self) -> HashSet<u32> {
        self.slab.iter().map(|(_, group)| group.kind).collect()
    }

    pub(super) fn members(&self, group: &Group) -> impl Iterator<Item = &Member> {
        self.members.list(group.first)
    }

    /// True if this registration is in memory.
    pub(super) fn knows(&self, lease: LeaseRef) -> bool {
        self.members.get(lease.id).is_some_and(|member| member.lease == lease)
    }

    /// Takes a sensor as the store has it now: puts it in, replaces it, or takes it out.
    ///
    /// The group is due at once, but no sooner than [`Rules::min_interval`] after its last look. If the
    /// sensor was taken over, or the target could not be looked at last time, it waits for the next grid
    /// point.
    pub(super) fn learn(&mut self, arrival: Arrival, now: DateTime<Utc>, rules: Rules) {
        let Arrival { sensor, kind, looked_at, tick, whole } = arrival;
        let lease = sensor.lease_ref();
        // A registration may be read twice, as a change and with its shard. It keeps the tick that learned of
        // it first: a poke that began since then answers it too.
        if sensor.state == SensorState::Waiting && self.knows(lease) {
            return;
        }
        self.remove(sensor.id);
        if sensor.state != SensorState::Waiting {
            return;
        }
        let Some(at) = self.find(&sensor, kind).or_else(|| self.found(&sensor, kind)) else { return };
        let terms = Terms::from(&sensor);
        let mut member = Member::new(lease, terms, tick, at);
        let Some(group) = self.slab.get_mut(at) else { return };
        if whole {
            // One text for all that share it.
            member.record = Some(Box::new(SensorRecord { context: group.context.clone(), ..sensor }));
        }
        let Some(first) = self.members.push(member, group.first) else { return };
        group.first = first;
        // Without members it counted as deserted, whether it was founded just now or waits for its poke.
        if group.members == 0 {
            self.deserted -= 1;
        }
        group.members += 1;
        group.looked_at = group.looked_at.max(looked_at);
        let interval =
            interval_at(&terms.settings, time::since(now, terms.registered_at)).max(rules.min_interval);
        // When the newcomer wants the target looked at:
        // - A target that nobody has looked at: now.
        // - An outage keeps its pause, or each registration would poke a service that is down. But the pause
        //   does not outlast what the sensor tolerates.
        // - A sensor that was taken over was looked at by its former worker. It waits for the grid, or each
        //   takeover would poke everything at once.
        // - Any other newcomer has a look of its own, which all that join within `min_interval` share.
        let poke = match (group.looked_at, group.outage) {
            (None, _) => now,
            (Some(looked), Some(outage)) => {
                let pause = backed_off(interval, outage.failures, rules.max_pause);
                next_poke(group.fingerprint, pause, looked)
                    .min(outage.borne_until(terms.registered_at, rules.window))
            }
            (Some(looked), None) if looked_at.is_some() => next_poke(group.fingerprint, interval, looked),
            (Some(looked), None) => {
                group.joined = true;
                time::add(looked, rules.min_interval)
            }
        };
        let before = group.timeout;
        group.add(&terms);
        // The due time only becomes earlier here: other members may wait for an earlier one. A timeout is due
        // as well, since a sensor that times out is looked at once more first.
        let due = group.due.min(time::micros(poke.max(now))).min(group.timeout);
        if group.timeout != before {
            self.timeouts.remove(&(before, at));
            self.timeouts.insert((group.timeout, at));
        }
        self.set_due(at, due);
    }

    fn find(&self, sensor: &SensorRecord, kind: u32) -> Option<u32> {
        let mut at = *self.by_print.get(&sensor.fingerprint)?;
        loop {
            let group = self.slab.get(at)?;
            if group.kind == kind && group.context == sensor.context {
                return Some(at);
            }
            at = group.twin;
        }
    }

    /// Founds a group, without members yet.
    fn found(&mut self, sensor: &SensorRecord, kind: u32) -> Option<u32> {
        self.incarnations += 1;
        let twin = self.by_print.get(&sensor.fingerprint).copied().unwrap_or(NOBODY);
        let group = Group::new(sensor.fingerprint, kind, sensor.context.clone(), self.incarnations, twin);
        let at = self.slab.insert(group)?;
        self.deserted += 1;
        self.by_print.insert(sensor.fingerprint, at);
        Some(at)
    }

    fn set_due(&mut self, at: u32, due: i64) {
        let Some(group) = self.slab.get_mut(at) else { return };
        let before = std::mem::replace(&mut group.due, due);
        if group.phase != Phase::Asked && before != due {
            self.due.remove(&(before, at));
            if due != i64::MAX {
                self.due.insert((due, at));
            }
        }
    }

    /// Forgets one sensor.
    pub(super) fn remove(&mut self, id: TaskId) {
        let Some(at) = self.members.group(id) else { return };
        let Some(group) = self.slab.get_mut(at) else { return };
        group.first = self.members.remove(id, group.first);
        group.members -= 1;
        group.stale = true;
        if group.members == 0 {
            self.deserted += 1;
            self.desert(at);
        }
    }

    /// Takes a group that has no members out of all orders; forgets it, unless its poke is still to return.
    fn desert(&mut self, at: u32) {
        self.set_outage(at, None);
        let Some(group) = self.slab.get_mut(at) else { return };
        self.timeouts.remove(&(group.timeout, at));
        if group.phase != Phase::Asked {
            self.due.remove(&(group.due, at));
        }
        group.clear();
        if group.phase == Phase::Resting {
            self.forget(at);
        }
    }

    fn forget(&mut self, at: u32) {
        let Some(group) = self.slab.remove(at) else { return };
        self.deserted -= 1;
        match self.by_print.get(&group.fingerprint).copied() {
            Some(first) if first == at && group.twin == NOBODY => {
                self.by_print.remove(&group.fingerprint);
                shrink(&mut self.by_print);
            }
            Some(first) if first == at => {
                self.by_print.insert(group.fingerprint, group.twin);
            }
            Some(mut before) => {
                while let Some(other) = self.slab.get_mut(before) {
                    if other.twin == at {
                        other.twin = group.twin;
                        break;
                    }
                    before = other.twin;
                }
            }
            None => {}
        }
    }

    /// Forgets the sensors whose fingerprint is not the worker's any more.
    pub(super) fn retain(&mut self, mine: impl Fn(Fingerprint) -> bool) {
        let lost = self.slab.iter().filter(|(_, group)| !mine(group.fingerprint));
        let lost: Vec<TaskId> =
            lost.flat_map(|(_, group)| self.members(group)).map(|member| member.lease.id).collect();
        for id in lost {
            self.remove(id);
        }
    }

    /// Forgets all sensors. Groups whose poke is still to return are kept for that.
    pub(super) fn clear(&mut self) {
        self.members.clear();
        let all: Vec<(u32, u32)> = self.slab.iter().map(|(at, group)| (at, group.members)).collect();
        for (at, members) in all {
            if let Some(group) = self.slab.get_mut(at).filter(|_| members > 0) {
                group.members = 0;
                self.deserted += 1;
                self.desert(at);
            }
        }
    }

    /// The next group that is due. Unless it hangs, it is asked from now on; either way [`Self::rest`] is to
    /// give it a new due time. Groups whose due time has moved back are passed over.
    pub(super) fn next_due(&mut self, now: DateTime<Utc>, rules: Rules) -> Option<GroupRef> {
        let limit = time::micros(now);
        // When a member goes, its group's due time is left as it is and the group marked stale. So removing a
        // thousand members costs one pass over the rest, here, instead of a thousand. A stale group is
        // computed again when it comes first. It may then be due later: it is put back, and the loop looks at
        // the next.
        loop {
            let (due, at) = *self.due.first().filter(|(due, _)| *due <= limit)?;
            let Some(stale) = self.slab.get(at).map(|group| group.stale) else {
                self.due.pop_first();
                continue;
            };
            if stale {
                self.refresh(at);
                let next = self.slab.get(at).map_or(i64::MAX, |group| {
                    let since = group.looked_at.unwrap_or(now);
                    let grid = next_poke(group.fingerprint, self.interval(group, now, rules), since);
                    // It was due for a member that has gone, or for a grid that was finer. A first look that
                    // somebody still waits for stays due.
                    if group.looked_at.is_none() || group.joined {
                        due
                    } else {
                        time::micros(grid).min(group.timeout).max(due)
                    }
                });
                self.set_due(at, next);
                continue;
            }
            let group = self.slab.get_mut(at)?;
            let found = GroupRef { at, incarnation: group.incarnation };
            self.due.pop_first();
            // While it is asked it is in no order; `due` then notes who joins. A group that hangs is returned
            // as well, because each of its due times counts as one more failed look, but stays hung.
            group.due = i64::MAX;
            if group.phase == Phase::Resting {
                group.phase = Phase::Asked;
                (group.looked_at, group.asked_at, group.joined) = (Some(now), Some(now), false);
            }
            return Some(found);
        }
    }

    /// Computes anew what its members have in common.
    fn refresh(&mut self, at: u32) {
        let Some(group) = self.slab.get_mut(at) else { return };
        let before = group.timeout;
        group.clear();
        for member in self.members.list(group.first) {
            group.add(&member.terms);
        }
        self.timeouts.remove(&(before, at));
        self.timeouts.insert((group.timeout, at));
    }

    fn interval(&self, group: &Group, now: DateTime<Utc>, rules: Rules) -> Duration {
        let current = |member: &Member| {
            interval_at(&member.terms.settings, time::since(now, member.terms.registered_at))
        };
        let interval = match group.grows {
            true => self.members(group).map(current).min().unwrap_or(group.interval),
            false => group.interval,
        };
        let interval = interval.max(rules.min_interval);
        group.outage.map_or(interval, |outage| backed_off(interval, outage.failures, rules.max_pause))
    }

    /// A group's poke was answered, or will not be made: it waits for its next due time.
    pub(super) fn rest(&mut self, group: GroupRef, now: DateTime<Utc>, rules: Rules) {
        let Some(found) = self.get_mut(group) else { return };
        let asked = found.phase == Phase::Asked;
        if asked {
            found.phase = Phase::Resting;
        }
        // All members went while it was asked. It was kept until the answer came, so that a newcomer of the
        // same target found it, and the target was not poked a second time meanwhile.
        if found.members == 0 {
            if asked {
                self.forget(group.at);
            }
            return;
        }
        // Of a timeout that has passed, the members may have ended already: the earliest is another one then.
        if found.stale || found.timeout <= time::micros(now) {
            self.refresh(group.at);
        }
        let Some(found) = self.get(group) else { return };
        let mut due = time::micros(next_poke(found.fingerprint, self.interval(found, now, rules), now));
        let ends = found.outage.and_then(|outage| {
            let borne = |member: &Member| outage.borne_until(member.terms.registered_at, rules.window);
            self.members(found).map(borne).min()
        });
        // It is due on its grid, and before that when the first member times out or has tolerated the outage
        // for long enough: nothing else would end that member in time. An end that has passed is one that the
        // store has not taken yet. It is tried again no sooner than `min_interval`, or the group would be due
        // in each tick for as long as the store fails.
        let soonest = time::micros(time::add(now, rules.min_interval));
        for end in ends.map(time::micros).into_iter().chain([found.timeout]) {
            due = due.min(if end > time::micros(now) { end } else { soonest });
        }
        if asked {
            // Newcomers joined while it was asked, too late for that poke: they wait for no grid point,
            // unless the target cannot be looked at.
            due = if found.outage.is_none() { due.min(found.due) } else { due };
            if let Some(found) = self.get_mut(group) {
                found.due = i64::MAX;
            }
        }
        self.set_due(group.at, due);
    }

    /// Its poke passed its deadline: until that returns it is not poked again.
    pub(super) fn hangs(&mut self, group: GroupRef, now: DateTime<Utc>, rules: Rules) {
        if self.get(group).is_some_and(|found| found.members > 0) {
            self.rest(group, now, rules);
        }
        if let Some(found) = self.get_mut(group) {
            found.phase = Phase::Hung;
        }
    }

    /// A poke that hung has returned.
    pub(super) fn returned(&mut self, group: GroupRef) {
        let Some(found) = self.get_mut(group).filter(|found| found.phase == Phase::Hung) else { return };
        found.phase = Phase::Resting;
        if found.members == 0 {
            self.forget(group.at);
        }
    }

    /// Notes what an answer says of the target.
    pub(super) fn note(&mut self, group: GroupRef, outage: Option<Outage>) {
        if self.get(group).is_some_and(|found| found.members > 0) {
            self.set_outage(group.at, outage);
        }
    }

    fn set_outage(&mut self, at: u32, outage: Option<Outage>) {
        let Some(group) = self.slab.get_mut(at) else { return };
        self.outages -= usize::from(group.outage.is_some());
        group.outage = outage;
        self.outages += usize::from(outage.is_some());
    }

    /// The groups with members that may have timed out at that instant or earlier.
    pub(super) fn timed_out(&self, at: DateTime<Utc>) -> impl Iterator<Item = &Group> {
        let limit = time::micros(at);
        let passed = self.timeouts.iter().take_while(move |(timeout, _)| *timeout <= limit);
        passed.filter_map(|(_, at)| self.slab.get(*at))
    }

    /// The first timeout after this instant, at which a group with members may have timed out.
    pub(super) fn next_timeout(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut later = self.timeouts.range((time::micros(after).saturating_add(1), 0)..);
        later.next().map(|(timeout, _)| time::from_micros(*timeout))
    }

    /// The earliest due time.
    pub(super) fn earliest(&self) -> Option<DateTime<Utc>> {
        self.due.first().map(|(due, _)| time::from_micros(*due))
    }
}

#[cfg(test)]
mod tests;
