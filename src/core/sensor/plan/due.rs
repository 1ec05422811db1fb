//! When groups are due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Job;
use super::group::{Common, Group, Member, Phase};
use super::{GroupRef, Plan, Rules, shrink};
use crate::id::SensorKind;
use crate::sensor::{PokeOutcome, Terms, backed_off, interval_at, next_poke, settle};
use crate::time::Timestamp;

/// A group whose time has come.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) group: GroupRef,
    pub(crate) kind: SensorKind,
    /// Its last poke has not returned. It must not be poked.
    pub(crate) hangs: bool,
}

/// Groups by an instant of theirs, in microseconds. One whose instant never comes is not among them.
#[derive(Debug, Default)]
pub(super) struct Order(BTreeSet<(i64, GroupRef)>);

impl Order {
    /// Changes the instant of a group.
    pub(super) fn set(&mut self, group: GroupRef, from: &mut i64, to: i64) {
        let before = std::mem::replace(from, to);
        if before == to {
            return;
        }
        self.0.remove(&(before, group));
        if to != i64::MAX {
            self.0.insert((to, group));
        }
    }

    /// Returns the first group whose instant has come.
    fn first(&self, now: Timestamp) -> Option<GroupRef> {
        self.0.first().filter(|(at, _)| *at <= now.as_micros()).map(|(_, group)| *group)
    }

    pub(super) fn earliest(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| Timestamp::from_micros(*at))
    }
}

impl Plan {
    /// Returns the next group whose time has come. Unless it hangs, it counts as asked from now on. Either way it must be
    /// answered ([`Self::answered`]), or put back ([`Self::put_back`]). Groups whose due time has moved back are skipped.
    ///
    /// When a member leaves, its group's due time stays and the group is marked stale. So removing a thousand members
    /// costs one pass over the rest, here, instead of a thousand. A stale group is recomputed when it comes first. If it
    /// is then due later, it is put back, and the loop looks at the next.
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<Due> {
        loop {
            let of = self.due.first(now)?;
            if self.groups.get(of)?.common.stale {
                self.refresh(of);
                // It may have been due for a member that has left.
                let group = self.groups.get(of)?;
                let since = group.looked_at.unwrap_or(now);
                let next = self.wanted(group, since, group.due, now).max(group.due);
                self.due.set(of, &mut self.groups.get_mut(of)?.due, next);
                continue;
            }
            let group = self.groups.get_mut(of)?;
            // While it is asked it is in no order. A group that hangs is returned as well, because each of its
            // due times counts as one more failed look, but stays hung.
            self.due.set(of, &mut group.due, i64::MAX);
            (group.looked_at, group.joined) = (Some(now), false);
            if group.phase == Phase::Resting {
                group.phase = Phase::Asked(now);
                let overdue = group.common.timeout.max(now.as_micros());
                self.overdue.set(of, &mut group.overdue, overdue);
            }
            return Some(Due { group: of, kind: group.kind.clone(), hangs: group.phase == Phase::Hung });
        }
    }

    /// Returns what to poke for a group that was due. If no sensor waits for it any more, it is put back.
    pub(crate) fn job(&mut self, group: GroupRef, now: Timestamp) -> Option<Job> {
        let Some(found) = self.groups.get(group).filter(|found| !found.members.is_empty()) else {
            self.rest(group, now);
            return None;
        };
        let Rules { poke_timeout, max_poke_timeout, .. } = self.rules;
        // A sensor that timed out while no one looked still gets its last look.
        let last_look = found.common.last_timeout.max(now.as_micros());
        let usual = i64::try_from(poke_timeout.as_micros()).unwrap_or(i64::MAX);
        Some(Job {
            group,
            context: found.context.clone(),
            sensors: found.members.len(),
            now,
            timeout: found.common.poke_timeout.map_or(poke_timeout, |own| own.min(max_poke_timeout)),
            of_use_until: last_look.saturating_add(usual),
            turn: self.turn,
        })
    }

    /// Gives a group that was due its next time, because its poke will not be made.
    pub(crate) fn put_back(&mut self, group: GroupRef) {
        self.rest(group, self.now.unwrap_or(Timestamp::UNIX_EPOCH));
    }

    /// Gives a group its next due time, after its poke was answered or will not be made.
    pub(super) fn rest(&mut self, of: GroupRef, now: Timestamp) {
        let Some(group) = self.groups.get_mut(of) else { return };
        let was_asked = matches!(group.phase, Phase::Asked(_));
        if was_asked {
            group.phase = Phase::Resting;
            self.overdue.set(of, &mut group.overdue, i64::MAX);
        }
        // All members left while it was asked. It was kept until the answer came, so that a newcomer of the
        // same target found it, and the target was not poked a second time meanwhile.
        if group.members.is_empty() {
            if was_asked {
                self.unwanted -= 1;
                self.groups.forget(of);
            }
            return;
        }
        // If its timeout has passed, the members with that timeout may have ended already. Then another is
        // the earliest.
        if group.common.stale || group.common.timeout <= now.as_micros() {
            self.refresh(of);
        }
        let Some(group) = self.groups.get(of) else { return };
        // No look comes sooner, not even a last one. An end in the past is one that the store has not accepted yet: the
        // group must not be due in every tick while the store fails.
        let soonest = (now + self.rules.min_interval).as_micros();
        let due = self.wanted(group, now, soonest, now);
        if let Some(group) = self.groups.get_mut(of) {
            self.due.set(of, &mut group.due, due);
        }
    }

    /// Marks a group whose poke passed its deadline. It is not poked again until that poke returns.
    pub(super) fn hangs(&mut self, of: GroupRef, now: Timestamp) {
        if !self.is_deserted(of) {
            self.rest(of, now);
        }
        if let Some(group) = self.groups.get_mut(of) {
            // Without members it was not given a rest.
            let before = std::mem::replace(&mut group.phase, Phase::Hung);
            self.unwanted -= usize::from(matches!(before, Phase::Asked(_)));
        }
    }

    /// Notes that a poke that hung has returned. Its group may be poked again.
    pub(crate) fn returned(&mut self, of: GroupRef) {
        let Some(group) = self.groups.get_mut(of).filter(|group| group.phase == Phase::Hung) else { return };
        group.phase = Phase::Resting;
        if group.members.is_empty() {
            self.groups.forget(of);
        }
    }

    /// Ends the sensors that have timed out and whose last look has not come in the usual time. Either no thread
    /// was free for it, or the poke takes longer than they can wait. The poke goes on for the other sensors of
    /// its group, which comes back here for the members that time out later.
    pub(crate) fn end_overdue(&mut self, now: Timestamp) {
        let rules = self.rules;
        self.looks.retain(|_, looked| now < *looked + rules.min_interval);
        shrink(&mut self.looks);
        let before = now - rules.poke_timeout;
        while let Some(of) = self.overdue.first(before) {
            let Some(group) = self.groups.get_mut(of) else { return };
            let mut later = i64::MAX;
            for member in group.members.iter().filter_map(|id| self.members.get(id)) {
                if member.terms.times_out_at > before {
                    later = later.min(member.terms.times_out_at.as_micros());
                } else if let Some(ending) = settle(&member.terms, &PokeOutcome::NotYet, now) {
                    self.endings.entry(member.lease).or_insert_with(|| Arc::new(ending));
                }
            }
            self.overdue.set(of, &mut group.overdue, later);
        }
    }

    /// Recomputes what the members of a group have in common.
    fn refresh(&mut self, of: GroupRef) {
        let Some(group) = self.groups.get_mut(of) else { return };
        group.common = Common::NONE;
        for member in group.members.iter().filter_map(|id| self.members.get(id)) {
            group.common.add(&member.terms);
        }
    }

    pub(super) fn members_of(&self, group: &Group) -> impl Iterator<Item = &Member> {
        group.members.iter().filter_map(|id| self.members.get(id)).map(Box::as_ref)
    }

    pub(super) fn interval(&self, group: &Group, now: Timestamp) -> Duration {
        let current = |member: &Member| {
            interval_at(&member.terms.settings, now.saturating_duration_since(member.terms.registered_at))
        };
        let interval = match group.common.grows {
            true => self.members_of(group).map(current).min().unwrap_or(group.common.interval),
            false => group.common.interval,
        };
        let interval = interval.max(self.rules.min_interval);
        group.outage.map_or(interval, |outage| backed_off(interval, outage.age(now), self.rules.max_pause))
    }

    /// Returns when the members of a group want it to be due, in microseconds:
    ///
    /// * *Grid*: at the first point after `since`. An outage makes it wider.
    /// * *First look*: members that registered since the last poke began are not concerned by its answer. They
    ///   do not wait for the grid, unless the target is unreachable.
    /// * *Last look*: when the first member times out, or has tolerated the outage for long enough, but not before
    ///   `soonest`. Nothing else would end that member in time.
    fn wanted(&self, group: &Group, since: Timestamp, soonest: i64, now: Timestamp) -> i64 {
        let rules = self.rules;
        let mut due = next_poke(group.of.fingerprint, self.interval(group, now), since).as_micros();
        if group.outage.is_none() {
            due = match group.looked_at {
                None => due.min(now.as_micros()),
                Some(looked) if group.joined => due.min((looked + rules.min_interval).as_micros()),
                Some(_) => due,
            };
        }
        let ends = group.outage.and_then(|outage| {
            let borne = |member: &Member| outage.borne_until(member.terms.registered_at, rules.retry_window);
            self.members_of(group).map(borne).min()
        });
        for end in ends.map(Timestamp::as_micros).into_iter().chain([group.common.timeout]) {
            due = due.min(end.max(soonest));
        }
        due
    }
}

impl Group {
    /// Returns when a newcomer wants the target looked at, in microseconds:
    ///
    /// * A target that no one has looked at: now.
    /// * An outage keeps its pause, or each registration would poke a service that is down. But the pause does not
    ///   outlast what the sensor tolerates.
    /// * A sensor that was taken over was looked at by its former worker. It waits for the grid, or each takeover would
    ///   poke everything at once. If it missed one point of the grid, that is now.
    /// * Any other newcomer gets its own look, which all that join within `min_interval` share.
    /// * In any case when it times out, since a sensor that times out is looked at once more first.
    pub(super) fn first_look(&self, terms: &Terms, taken_over: bool, now: Timestamp, rules: Rules) -> i64 {
        let age = now.saturating_duration_since(terms.registered_at);
        let interval = interval_at(&terms.settings, age).max(rules.min_interval);
        let next = |interval, after| next_poke(self.of.fingerprint, interval, after);
        let poke = match (self.looked_at, self.outage) {
            (None, _) => now,
            (Some(looked), Some(outage)) => {
                let pause = backed_off(interval, outage.age(now), rules.max_pause);
                next(pause, looked).min(outage.borne_until(terms.registered_at, rules.retry_window))
            }
            (Some(looked), None) if taken_over => {
                // Of due times that no one looked at, one is made up for, or a long pause of all workers would make all
                // targets due at once.
                let first = next(interval, looked);
                if next(interval, first) > now { first } else { next(interval, now) }
            }
            (Some(looked), None) => looked + rules.min_interval,
        };
        let soonest = self.looked_at.map_or(Timestamp::MIN, |looked| looked + rules.min_interval);
        poke.max(now).min(terms.times_out_at.max(soonest)).as_micros()
    }
}
