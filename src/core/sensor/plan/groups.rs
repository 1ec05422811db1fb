//! The poke groups of a worker's shards in memory, indexed by target, due time and timeout.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::group::{Group, GroupRef, Phase};
use super::members::{Member, Members};
use super::outages::Outages;
use super::slab::{NONE, Slab, shrink};
use super::{Arrival, Rules};
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{Outage, SensorRecord, SensorState, Terms, backed_off, interval_at, next_poke};
use crate::time::Timestamp;

/// All sensors for which this worker is responsible.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) slab: Slab<Group>,
    pub(super) members: Members,
    /// A group of each fingerprint.
    by_print: HashMap<Fingerprint, u32>,
    /// Further groups, whose targets share the fingerprint of one in `by_print`.
    twins: BTreeSet<(Fingerprint, u32)>,
    due: BTreeSet<(Timestamp, u32)>,
    /// Groups that were due since the last [`Self::file_asked`]. Most of their pokes return before the next one.
    asked: Vec<u32>,
    /// Groups that are being poked, by [`Group::overdue`] unless that is `Timestamp::MAX`. Those in `asked` may be
    /// missing.
    overdue: BTreeSet<(Timestamp, u32)>,
    /// When targets were last poked whose sensors have all left. A new sensor waits as if they had stayed.
    pub(super) looks: HashMap<Fingerprint, Timestamp>,
    incarnations: u32,
    /// The number of groups whose target was unreachable at the last poke.
    pub(super) outages: usize,
    pub(super) stored: Outages,
    /// The number of sensors and of groups, for each kind that has any.
    pub(super) by_kind: BTreeMap<SensorKind, (usize, usize)>,
    /// The number of groups without members that are being poked. They are kept until their poke returns or is not
    /// made.
    pub(super) unwanted: usize,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.by_kind.values().map(|(_, groups)| groups).sum()
    }

    pub(super) fn get(&self, group: GroupRef) -> Option<&Group> {
        self.slab.get(group.at).filter(|found| found.incarnation == group.incarnation)
    }

    pub(super) fn get_mut(&mut self, group: GroupRef) -> Option<&mut Group> {
        self.slab.get_mut(group.at).filter(|found| found.incarnation == group.incarnation)
    }

    /// Returns true if this registration is in memory.
    pub(super) fn knows(&self, lease: LeaseRef) -> bool {
        self.members.get(lease.id).is_some_and(|member| member.lease == lease)
    }

    /// Applies a sensor's state in the store: adds, replaces or removes the sensor.
    ///
    /// A new sensor makes its group due at once, but no sooner than [`Rules::min_interval`] after the group's
    /// last poke. If the sensor was taken over, or its target was unreachable at the last poke, the group
    /// waits for the next grid point.
    pub(super) fn learn(&mut self, arrival: Arrival, turn: u64, now: Timestamp, rules: Rules) {
        let Arrival { sensor, left_at, whole, served } = arrival;
        let lease = sensor.lease_ref();
        // A registration may be read twice, as a change and with its shard. It keeps the turn that read it
        // first, because a poke that began since then counts for it.
        let waits = sensor.state == SensorState::Waiting;
        match self.members.get_mut(lease.id) {
            Some(known) if waits && known.lease == lease => {
                known.doubted = false;
                return;
            }
            Some(_) => self.remove(lease.id),
            None => {}
        }
        if !waits {
            return;
        }
        let Some(at) = self.find(&sensor).map(|(at, _)| at).or_else(|| self.found(&sensor)) else { return };
        let terms = Terms::from(&sensor);
        // A sensor that was taken over counts as last poked when its shard was given up. So a restart does
        // not poke all targets at once, and a due time that passed while no worker held the shard is not
        // skipped. Sensors that registered later are excluded, and so are those so young that their first
        // poke may be missing.
        let is_old =
            |left: &Timestamp| terms.registered_at < *left && now >= terms.registered_at + rules.lease;
        let looked_at = left_at.filter(is_old);
        let Some(group) = self.slab.get_mut(at) else { return };
        // All members share one copy of the text.
        let record = whole.then(|| Box::new(SensorRecord { context: group.context.clone(), ..sensor }));
        let member = Member::new(lease, terms, turn, at, record);
        let Some(()) = self.members.insert(member, &mut group.ring) else { return };
        if group.members == 0 {
            self.join_first(at, left_at, served, now, rules);
        }
        let Some(group) = self.slab.get_mut(at) else { return };
        let of_kind = self.by_kind.entry(group.kind.clone()).or_default();
        *of_kind = (of_kind.0 + 1, of_kind.1 + usize::from(group.members == 0));
        group.members += 1;
        group.set_looked_at(group.looked_at().max(looked_at));
        group.joined |= looked_at.is_none();
        let poke = first_look(group, &terms, looked_at.is_some(), now, rules);
        group.add(&terms);
        // A due time only becomes earlier here, since other members may need the earlier one. A timeout makes
        // the group due as well: a sensor that times out is poked once more first.
        let last_look = group
            .looked_at()
            .map_or(terms.times_out_at, |looked| terms.times_out_at.max(looked + rules.min_interval));
        let due = poke.max(now).min(last_look).min(group.due);
        if group.phase == Phase::Asked {
            let overdue = group.asked_at.max(terms.times_out_at).min(group.overdue);
            self.set_overdue(at, overdue);
        }
        self.set_due(at, due);
    }

    /// Continues with what is known about the target of a group that gets its first member.
    fn join_first(
        &mut self,
        at: u32,
        left_at: Option<Timestamp>,
        served: bool,
        now: Timestamp,
        rules: Rules,
    ) {
        let Some(group) = self.slab.get_mut(at) else { return };
        let target = group.fingerprint;
        self.unwanted -= usize::from(group.phase == Phase::Asked);
        let looked = self.looks.get(&target).copied();
        group.set_looked_at(looked.filter(|looked| now < *looked + rules.min_interval));
        self.stored.is_matched(target);
        if !served {
            // The state of a target that no worker pokes is unknown. The next worker must not find an outage in
            // the store.
            self.stored.is_over(target, now);
        } else if let Some(left_at) = left_at.filter(|left_at| now > *left_at + rules.handed_on()) {
            // No worker knows whether the outage continued. If it counted on, the first failed poke could at
            // once fail sensors that have waited since before the gap.
            self.stored.is_over(target, left_at);
        }
        self.set_outage(at, self.stored.goes_on(target).map(|since| Outage { since }));
    }

    /// Returns the groups with this fingerprint.
    fn with_print(&self, fingerprint: Fingerprint) -> impl Iterator<Item = (u32, &Group)> {
        let twins = self.twins.range((fingerprint, 0)..=(fingerprint, u32::MAX)).map(|(_, at)| at);
        let all = self.by_print.get(&fingerprint).into_iter().chain(twins);
        all.filter_map(|at| Some((*at, self.slab.get(*at)?)))
    }

    /// Returns true if there is a group with this fingerprint.
    pub(super) fn has(&self, fingerprint: Fingerprint) -> bool {
        self.with_print(fingerprint).next().is_some()
    }

    /// Returns the group of this sensor's target.
    pub(super) fn find(&self, sensor: &SensorRecord) -> Option<(u32, &Group)> {
        self.with_print(sensor.fingerprint)
            .find(|(_, group)| group.kind == sensor.kind && group.context == sensor.context)
    }

    /// Creates a group that has no members yet.
    fn found(&mut self, sensor: &SensorRecord) -> Option<u32> {
        self.incarnations = self.incarnations.wrapping_add(1);
        // All groups of a kind share one copy of its name.
        let kind = self.by_kind.get_key_value(&sensor.kind).map_or(&sensor.kind, |(kind, _)| kind).clone();
        let group = Group::new(sensor.fingerprint, kind, sensor.context.clone(), self.incarnations);
        let at = self.slab.insert(group)?;
        if *self.by_print.entry(sensor.fingerprint).or_insert(at) != at {
            self.twins.insert((sensor.fingerprint, at));
        }
        Some(at)
    }

    /// Sets when a group is due. Does nothing while the group is being poked: the outcome then decides.
    fn set_due(&mut self, at: u32, due: Timestamp) {
        let Some(group) = self.slab.get_mut(at).filter(|group| group.phase != Phase::Asked) else { return };
        let before = std::mem::replace(&mut group.due, due);
        if before != due {
            self.due.remove(&(before, at));
            self.due.insert((due, at));
        }
    }

    /// Sets the instant since which a member of a group that is being poked waits only for its last poke.
    fn set_overdue(&mut self, at: u32, overdue: Timestamp) {
        let Some(group) = self.slab.get_mut(at) else { return };
        self.overdue.remove(&(std::mem::replace(&mut group.overdue, overdue), at));
        if overdue != Timestamp::MAX {
            self.overdue.insert((overdue, at));
        }
    }

    /// Removes one sensor.
    pub(super) fn remove(&mut self, id: TaskId) {
        let Some(at) = self.members.get(id).map(|member| member.group) else { return };
        let Some(group) = self.slab.get_mut(at) else { return };
        self.members.remove(id, &mut group.ring);
        group.members -= 1;
        group.stale = true;
        if let Some((sensors, groups)) = self.by_kind.get_mut(&group.kind) {
            (*sensors, *groups) = (*sensors - 1, *groups - usize::from(group.members == 0));
            if *sensors == 0 {
                self.by_kind.remove(&group.kind);
            }
        }
        if group.members == 0 {
            self.retire(at);
        }
    }

    /// Takes a group without members out of all orders and removes it. If its poke has not returned, the
    /// group is kept until it does.
    fn retire(&mut self, at: u32) {
        self.set_outage(at, None);
        self.set_overdue(at, Timestamp::MAX);
        let Some(group) = self.slab.get_mut(at) else { return };
        match group.phase {
            Phase::Asked => self.unwanted += 1,
            _ => drop(self.due.remove(&(group.due, at))),
        }
        if let Some(looked) = group.looked_at() {
            let known = self.looks.entry(group.fingerprint).or_insert(looked);
            *known = looked.max(*known);
        }
        group.clear();
        if group.phase == Phase::Resting {
            self.forget(at);
        }
    }

    fn forget(&mut self, at: u32) {
        let Some(group) = self.slab.remove(at) else { return };
        if !self.twins.remove(&(group.fingerprint, at)) {
            self.by_print.remove(&group.fingerprint);
            shrink(&mut self.by_print);
        }
    }

    /// Returns the sensors of these targets.
    pub(super) fn of(&self, mine: impl Fn(Fingerprint) -> bool) -> impl Iterator<Item = &Member> {
        let groups = self.slab.iter().filter(move |(_, group)| mine(group.fingerprint));
        groups.flat_map(|(_, group)| self.members.of(group.ring))
    }

    /// Removes the sensors whose fingerprint and kind no longer belong to the worker.
    pub(super) fn retain(&mut self, mine: impl Fn(Fingerprint, &SensorKind) -> bool) {
        let lost = self.slab.iter().filter(|(_, group)| !mine(group.fingerprint, &group.kind));
        let lost: Vec<TaskId> =
            lost.flat_map(|(_, group)| self.members.of(group.ring)).map(|member| member.lease.id).collect();
        for id in lost {
            self.remove(id);
        }
    }

    /// Removes all sensors. Groups whose poke has not returned are kept until it does.
    pub(super) fn clear(&mut self) {
        self.members = Members::default();
        self.by_kind.clear();
        let all: Vec<(u32, u32)> = self.slab.iter().map(|(at, group)| (at, group.members)).collect();
        for (at, members) in all {
            if let Some(group) = self.slab.get_mut(at).filter(|_| members > 0) {
                (group.members, group.ring) = (0, NONE);
                self.retire(at);
            }
        }
    }

    /// Returns the next group that is due. It counts as being poked from now on, unless it hangs. Either way
    /// the caller must give it a new due time with [`Self::rest`]. Groups whose due time has moved to later
    /// are skipped.
    pub(super) fn next_due(&mut self, now: Timestamp, rules: Rules) -> Option<GroupRef> {
        // When a member leaves, its group's due time stays and the group is marked stale. So removing a
        // thousand members costs one pass over the rest, here, instead of a thousand. A stale group is
        // recomputed when it comes first. If it is then due later, it is put back and the loop continues.
        loop {
            let (due, at) = *self.due.first().filter(|(due, _)| *due <= now)?;
            if self.slab.get(at)?.stale {
                self.refresh(at);
                // The group may have been due for a member that has left.
                let group = self.slab.get(at)?;
                let since = group.looked_at().unwrap_or(now);
                let next = self.wanted(group, since, due, now, rules).max(due);
                self.set_due(at, next);
                continue;
            }
            let group = self.slab.get_mut(at)?;
            let found = GroupRef { at, incarnation: group.incarnation };
            self.due.pop_first();
            // A group that is being poked is in no order. A group that hangs is returned too, but stays hung:
            // each of its due times counts as one more failed poke.
            (group.due, group.joined) = (Timestamp::MAX, false);
            group.set_looked_at(Some(now));
            if group.phase == Phase::Resting {
                (group.phase, group.asked_at) = (Phase::Asked, now);
                group.overdue = group.timeout.max(now);
                self.asked.push(at);
            }
            return Some(found);
        }
    }

    /// Recomputes everything that depends on the members.
    fn refresh(&mut self, at: u32) {
        let Some(group) = self.slab.get_mut(at) else { return };
        group.clear();
        for member in self.members.of(group.ring) {
            group.add(&member.terms);
        }
    }

    pub(super) fn interval(&self, group: &Group, now: Timestamp, rules: Rules) -> Duration {
        let current = |member: &Member| {
            interval_at(&member.terms.settings, now.saturating_duration_since(member.terms.registered_at))
        };
        let interval = match group.grows {
            true => self.members.of(group.ring).map(current).min().unwrap_or(group.interval),
            false => group.interval,
        };
        let interval = interval.max(rules.min_interval);
        group.outage.map_or(interval, |outage| backed_off(interval, outage.age(now), rules.max_pause))
    }

    /// Sets a group's next due time, after its poke has returned or if no poke will be made.
    pub(super) fn rest(&mut self, group: GroupRef, now: Timestamp, rules: Rules) {
        let Some(found) = self.get_mut(group) else { return };
        let asked = found.phase == Phase::Asked;
        let members = found.members;
        if asked {
            found.phase = Phase::Resting;
            self.set_overdue(group.at, Timestamp::MAX);
        }
        // All members left during the poke. The group was kept so that a new sensor with the same target
        // would find it instead of having the target poked twice at once.
        if members == 0 {
            if asked {
                self.unwanted -= 1;
                self.forget(group.at);
            }
            return;
        }
        let Some(found) = self.get(group) else { return };
        // Once its timeout has passed, the members with that timeout may have ended, and another member has
        // the earliest timeout.
        if found.stale || found.timeout <= now {
            self.refresh(group.at);
        }
        let Some(found) = self.get(group) else { return };
        // No poke comes sooner, not even a last one. If an end lies in the past, the store has not accepted
        // it yet, and the group must not be due in every tick while the store fails.
        let soonest = now + rules.min_interval;
        let due = self.wanted(found, now, soonest, now, rules);
        self.set_due(group.at, due);
    }

    /// Returns when the group should be due for its members. This is the earliest of:
    ///
    /// * *Grid*: the first grid point after `since`. An outage widens the grid.
    /// * *First poke*: the last poke's outcome does not apply to members that registered after it began. They
    ///   do not wait for the grid, unless the target is unreachable.
    /// * *Last poke*: when the first member times out or has tolerated the outage for long enough, but not
    ///   before `soonest`. Nothing else would end that member in time.
    fn wanted(
        &self,
        group: &Group,
        since: Timestamp,
        soonest: Timestamp,
        now: Timestamp,
        rules: Rules,
    ) -> Timestamp {
        let mut due = next_poke(group.fingerprint, self.interval(group, now, rules), since);
        if group.outage.is_none() {
            due = match group.looked_at() {
                None => due.min(now),
                Some(looked) if group.joined => due.min(looked + rules.min_interval),
                Some(_) => due,
            };
        }
        let ends = group.outage.and_then(|outage| {
            let borne = |member: &Member| outage.borne_until(member.terms.registered_at, rules.window);
            self.members.of(group.ring).map(borne).min()
        });
        ends.into_iter().chain([group.timeout]).fold(due, |due, end| due.min(end.max(soonest)))
    }

    /// Marks a group whose poke passed its deadline. It is not poked again until that poke returns.
    pub(super) fn hangs(&mut self, group: GroupRef, now: Timestamp, rules: Rules) {
        if self.get(group).is_some_and(|found| found.members > 0) {
            self.rest(group, now, rules);
        }
        if let Some(found) = self.get_mut(group) {
            // `rest` is not called for a group without members.
            let was_asked = std::mem::replace(&mut found.phase, Phase::Hung) == Phase::Asked;
            self.unwanted -= usize::from(was_asked);
        }
    }

    /// Marks a group whose hung poke has returned.
    pub(super) fn returned(&mut self, group: GroupRef) {
        let Some(found) = self.get_mut(group).filter(|found| found.phase == Phase::Hung) else { return };
        found.phase = Phase::Resting;
        if found.members == 0 {
            self.forget(group.at);
        }
    }

    /// Records what an outcome says about the target.
    pub(super) fn note(&mut self, group: GroupRef, outage: Option<Outage>, now: Timestamp) {
        if let Some(found) = self.get(group).filter(|found| found.members > 0) {
            if found.outage.is_some() && outage.is_none() {
                self.stored.is_over(found.fingerprint, now);
            }
            self.set_outage(group.at, outage);
        }
    }

    fn set_outage(&mut self, at: u32, outage: Option<Outage>) {
        let Some(group) = self.slab.get_mut(at) else { return };
        if group.outage != outage {
            self.stored.differs(group.fingerprint);
        }
        self.outages -= usize::from(group.outage.is_some());
        group.outage = outage;
        self.outages += usize::from(outage.is_some());
    }

    /// Returns since when the target of this fingerprint is unreachable. If several targets share it, the
    /// earliest instant counts.
    pub(super) fn unreachable_since(&self, fingerprint: Fingerprint) -> Option<Timestamp> {
        self.with_print(fingerprint).filter_map(|(_, group)| group.outage).map(|outage| outage.since).min()
    }

    /// Files the groups whose pokes have not returned, so that [`Self::next_overdue`] finds them.
    pub(super) fn file_asked(&mut self) {
        for at in std::mem::take(&mut self.asked) {
            if let Some(group) = self.slab.get(at).filter(|group| group.overdue != Timestamp::MAX) {
                self.overdue.insert((group.overdue, at));
            }
        }
    }

    /// Returns the ring of the next filed group that may have a member that has waited only for its last poke since
    /// `until` or earlier. The group is returned again later for members with later timeouts.
    pub(super) fn next_overdue(&mut self, until: Timestamp) -> Option<u32> {
        let (_, at) = self.overdue.first().copied().filter(|(since, _)| *since <= until)?;
        let ring = self.slab.get(at)?.ring;
        let timeouts = self.members.of(ring).map(|member| member.terms.times_out_at);
        let later = timeouts.filter(|timeout| *timeout > until).min();
        self.set_overdue(at, later.unwrap_or(Timestamp::MAX));
        Some(ring)
    }

    /// Returns the earliest instant since which a member of a filed group waits only for its last poke. The
    /// instant may lie in the future.
    pub(super) fn first_overdue(&self) -> Option<Timestamp> {
        self.overdue.first().map(|(since, _)| *since)
    }

    /// Removes entries for targets without sensors whose last poke is too long ago to matter.
    pub(super) fn forget_looks(&mut self, now: Timestamp, rules: Rules) {
        self.looks.retain(|_, looked| now < *looked + rules.min_interval);
        shrink(&mut self.looks);
    }

    /// Returns the earliest due time.
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }
}

/// Returns when a new sensor needs its target to be poked:
///
/// * A target that was never poked: now.
/// * A target in an outage: after the outage's pause, but no later than the end of what the sensor tolerates.
///   Otherwise each registration would poke a service that is down.
/// * A sensor that was taken over: at the next grid point, because its previous worker poked it. Otherwise
///   each takeover would poke everything at once. If the sensor missed a grid point, it is due now.
/// * Any other sensor: `min_interval` after the last poke. All sensors that join until then share that poke.
fn first_look(group: &Group, terms: &Terms, taken_over: bool, now: Timestamp, rules: Rules) -> Timestamp {
    let age = now.saturating_duration_since(terms.registered_at);
    let interval = interval_at(&terms.settings, age).max(rules.min_interval);
    match (group.looked_at(), group.outage) {
        (None, _) => now,
        (Some(looked), Some(outage)) => {
            let pause = backed_off(interval, outage.age(now), rules.max_pause);
            next_poke(group.fingerprint, pause, looked)
                .min(outage.borne_until(terms.registered_at, rules.window))
        }
        (Some(looked), None) if taken_over => {
            // Only one missed due time is made up for. Otherwise all targets would be due at once after a
            // long pause of all workers.
            let next = |after| next_poke(group.fingerprint, interval, after);
            let first = next(looked);
            if next(first) > now { first } else { next(now) }
        }
        (Some(looked), None) => looked + rules.min_interval,
    }
}
