//! What a poker does and when, as a plain value without threads, a clock or a store.
//!
//! Its inputs are the sensors' state in the store ([`Plan::learn`], [`Plan::forget`]), the shards that the
//! worker holds ([`Plan::hold`]) and the outcomes of pokes ([`Plan::answered`]). It returns which groups to
//! poke now ([`Plan::due`]), which sensors end ([`Plan::ends`]) and when it next has something to do
//! ([`Plan::next_due`]).

mod answer;
mod group;
mod groups;
mod loads;
mod members;
mod outages;
mod slab;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use answer::{Answer, Job, Log, Outcome};
pub(crate) use group::GroupRef;
use group::Phase;
use groups::Groups;
use outages::Outages;

use super::{Ending, PokeOutcome, Scope, Scopes, SensorRecord, settle};
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::lease::LeaseRef;
use crate::shard::{self, code};
use crate::time::Timestamp;

/// When to retry ends that the store did not accept or whose tasks other transactions hold.
const ENDS_AGAIN: Duration = Duration::from_secs(1);

/// The most ends recorded in one transaction.
const ENDS: usize = 10_000;

/// No further end is added to a transaction once its texts exceed this many bytes in total.
const END_BYTES: usize = 64 << 20;

/// The rules for due times, deadlines and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The shortest time between two pokes of a target.
    pub(crate) min_interval: Duration,
    /// The longest pause between pokes of an unreachable target, unless the target's interval is longer.
    pub(crate) max_pause: Duration,
    /// How long a sensor tolerates an outage.
    pub(crate) window: Duration,
    /// How long a poke may take if no sensor sets a timeout. Also how long a last poke may take.
    pub(crate) usual_timeout: Duration,
    /// The longest time that any poke may take.
    pub(crate) max_timeout: Duration,
    /// The length of a lease on a shard.
    pub(crate) lease: Duration,
    pub(crate) codes: NonZeroU32,
    pub(crate) shards: NonZeroU32,
}

impl Rules {
    /// Returns the longest time that a shard is without a worker during a handover. If the worker that should
    /// take it fails to do so, another one takes it within two thirds of a lease.
    fn handed_on(&self) -> Duration {
        self.lease - self.lease / 4
    }

    /// Returns the shard of a target.
    pub(crate) fn shard(&self, target: Fingerprint) -> u32 {
        shard::of(code(target, self.codes), self.codes, self.shards)
    }
}

/// A sensor's state as read from the store.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) sensor: SensorRecord,
    /// Since when no worker has served its shard, if the shard was just taken over from a worker.
    pub(crate) left_at: Option<Timestamp>,
    /// True if a log needs the whole record.
    pub(crate) whole: bool,
    /// True if the worker pokes its kind.
    pub(crate) served: bool,
}

/// A group that is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) group: GroupRef,
    /// True if its last poke has not returned. It must not be poked again yet.
    pub(crate) hangs: bool,
}

/// The sensors of a worker's shards, and all decisions about them.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) rules: Rules,
    groups: Groups,
    held: Scopes,
    /// Ends that the store has not recorded yet.
    endings: BTreeMap<LeaseRef, Arc<Ending>>,
    /// Counts the readings of the store.
    turn: u64,
    /// The instant of the last turn.
    now: Option<Timestamp>,
}

impl Plan {
    /// Begins a turn. Returns false if the clock was set back, because due times and leases may then be far
    /// in the future. In that case everything is forgotten except the running pokes.
    pub(crate) fn begin(&mut self, now: Timestamp) -> bool {
        let forward = self.now.is_none_or(|last| last <= now);
        if !forward {
            self.held.clear();
            self.endings.clear();
            self.groups.clear();
            self.groups.looks.clear();
            self.groups.stored = Outages::default();
        }
        self.now = Some(now);
        self.turn += 1;
        forward
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the instant of the last turn.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.now
    }

    pub(crate) fn sensors(&self) -> usize {
        self.groups.members.len()
    }

    /// Returns the number of targets.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of targets that were unreachable at their last poke.
    pub(crate) fn outages(&self) -> usize {
        self.groups.outages
    }

    /// Returns the number of sensors and of targets, for each kind that has any.
    pub(crate) fn by_kind(&self) -> &BTreeMap<SensorKind, (usize, usize)> {
        &self.groups.by_kind
    }

    /// Returns the kind of a group and the number of its sensors.
    pub(crate) fn target(&self, group: GroupRef) -> Option<(&SensorKind, usize)> {
        self.groups.get(group).map(|found| (&found.kind, found.members as usize))
    }

    /// Returns true if a group without sensors is being poked.
    pub(crate) fn has_unwanted(&self) -> bool {
        self.groups.unwanted > 0
    }

    /// Returns true if no sensor waits for this group.
    pub(crate) fn is_unwanted(&self, group: GroupRef) -> bool {
        self.groups.get(group).is_none_or(|found| found.members == 0)
    }

    /// Returns what the worker pokes, by shard.
    pub(crate) fn held(&self) -> &Scopes {
        &self.held
    }

    /// Sets what the worker pokes from now on. Forgets all other sensors, but not the running pokes: a target
    /// that comes back meanwhile must not be poked twice at once.
    pub(crate) fn hold(&mut self, held: Scopes) {
        let keeps = |(shard, scope): (&u32, &Scope)| held.get(shard).is_some_and(|next| !scope.exceeds(next));
        let keeps_all = self.held.iter().all(keeps);
        self.held = held;
        if keeps_all {
            return;
        }
        let scope = |target| self.held.get(&self.rules.shard(target));
        self.groups.retain(|target, kind| scope(target).is_some_and(|scope| scope.has(kind)));
        let mut outages = std::mem::take(&mut self.groups.stored);
        // If the worker does not hold the whole shard, sensors of other kinds belong to another worker.
        outages
            .retain(|target| scope(target).is_some_and(|scope| scope.is_whole() || self.groups.has(target)));
        self.groups.stored = outages;
    }

    /// Returns true if the worker pokes this sensor.
    pub(crate) fn is_mine(&self, sensor: &SensorRecord) -> bool {
        self.held.get(&self.rules.shard(sensor.fingerprint)).is_some_and(|scope| scope.has(&sensor.kind))
    }

    /// Applies a sensor's state in the store: adds, replaces or removes the sensor.
    pub(crate) fn learn(&mut self, arrival: Arrival, now: Timestamp) {
        self.groups.learn(arrival, self.turn, now, self.rules);
    }

    /// Returns true if this registration is in memory.
    pub(crate) fn knows(&self, lease: LeaseRef) -> bool {
        self.groups.knows(lease)
    }

    /// Returns the whole record of this registration, if a log needs it.
    pub(crate) fn whole(&self, lease: LeaseRef) -> Option<&SensorRecord> {
        self.groups.members.get(lease.id).filter(|member| member.lease == lease)?.record.as_deref()
    }

    /// Returns how many sensors share this one's target. The sensor itself counts once it is known.
    pub(crate) fn sharing(&self, sensor: &SensorRecord) -> u32 {
        self.groups.find(sensor).map_or(0, |(_, group)| group.members)
    }

    /// Marks the sensors of these shards as doubted until they are found waiting again.
    pub(crate) fn doubt(&mut self, of: impl Fn(u32) -> bool) {
        let doubted = self.groups.of(|target| of(self.rules.shard(target)));
        for id in doubted.map(|member| member.lease.id).collect::<Vec<_>>() {
            if let Some(member) = self.groups.members.get_mut(id) {
                member.doubted = true;
            }
        }
    }

    /// Returns the doubted sensors of these shards that have not been found waiting since.
    pub(crate) fn doubted(&self, of: impl Fn(u32) -> bool) -> Vec<LeaseRef> {
        let doubted = self.groups.of(|target| of(self.rules.shard(target))).filter(|member| member.doubted);
        doubted.map(|member| member.lease).collect()
    }

    /// Returns the next group that is due. The caller must pass its outcome to [`Self::answered`], or put it
    /// back with [`Self::put_back`].
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<Due> {
        let group = self.groups.next_due(now, self.rules)?;
        let found = self.groups.get(group)?;
        Some(Due { group, hangs: found.phase == Phase::Hung })
    }

    /// Returns the poke to make for a group that was due. If no sensor waits for the group any more, it is
    /// put back.
    pub(crate) fn job(&mut self, group: GroupRef, now: Timestamp) -> Option<Job> {
        let Some(found) = self.groups.get(group).filter(|found| found.members > 0) else {
            self.groups.rest(group, now, self.rules);
            return None;
        };
        // A sensor that timed out while no worker ran still gets its last poke.
        let wait = found.last_timeout.saturating_duration_since(now);
        Some(Job {
            group,
            context: found.context.clone(),
            sensors: found.members,
            now,
            timeout: found
                .poke_timeout
                .map_or(self.rules.usual_timeout, |own| own.min(self.rules.max_timeout)),
            useful_for: wait.saturating_add(self.rules.usual_timeout),
            turn: self.turn,
        })
    }

    /// Sets the next due time of a group that was due but will not be poked.
    pub(crate) fn put_back(&mut self, group: GroupRef) {
        self.groups.rest(group, self.now.unwrap_or(Timestamp::UNIX_EPOCH), self.rules);
    }

    /// Records that a hung poke has returned. Its group may be poked again.
    pub(crate) fn returned(&mut self, group: GroupRef) {
        self.groups.returned(group);
    }

    /// Ends the sensors that have timed out and whose last poke has not returned within the usual time.
    /// Either no thread was free for it, or it takes longer than they can wait. The poke goes on for the
    /// other sensors of its group. Each turn calls it after its last [`Self::due`].
    pub(crate) fn end_overdue(&mut self, now: Timestamp) {
        self.groups.forget_looks(now, self.rules);
        self.groups.file_asked();
        let before = now - self.rules.usual_timeout;
        while let Some(ring) = self.groups.next_overdue(before) {
            let members = self.groups.members.of(ring);
            for member in members.filter(|member| member.terms.times_out_at <= before) {
                if let Some(ending) = settle(&member.terms, &PokeOutcome::NotYet, now) {
                    self.endings.entry(member.lease).or_insert_with(|| Arc::new(ending));
                }
            }
        }
    }

    /// Returns the ends to record after `after`, at most as many as one transaction takes. They stay until
    /// [`Self::forget`] is called. Ends of sensors that were forgotten or registered again are dropped.
    pub(crate) fn ends(&mut self, after: Option<LeaseRef>) -> Vec<(LeaseRef, Ending)> {
        let groups = &self.groups;
        if after.is_none() {
            self.endings.retain(|lease, _| groups.knows(*lease));
        }
        let mut bytes = 0;
        let mut fits = |ending: &Arc<Ending>| {
            let begun = bytes > END_BYTES;
            bytes += [&ending.value, &ending.message].into_iter().flatten().map(String::len).sum::<usize>();
            !begun
        };
        let later = self.endings.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let chunk = later.take(ENDS).take_while(|(_, ending)| fits(ending));
        chunk.map(|(lease, ending)| (*lease, Ending::clone(ending))).collect()
    }

    /// Forgets a sensor whose end is settled: the store has recorded it, or the sensor no longer waits there.
    pub(crate) fn forget(&mut self, lease: LeaseRef) {
        self.endings.remove(&lease);
        self.groups.remove(lease.id);
    }

    /// Forgets everything, including the running pokes. Their outcomes must not be passed in afterwards.
    pub(crate) fn forget_pokes(&mut self) {
        *self = Self { rules: self.rules, turn: self.turn, now: self.now, ..Self::default() };
    }

    /// Returns when the plan next has something to do, after [`Self::end_overdue`].
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let overdue = self.groups.first_overdue().map(|since| since + self.rules.usual_timeout);
        let ends = (!self.endings.is_empty()).then(|| now + ENDS_AGAIN);
        [self.groups.earliest(), overdue, ends].into_iter().flatten().min()
    }
}
