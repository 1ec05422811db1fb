//! What a poker does when: a value without threads, clock or store.
//!
//! Its inputs are the state of sensors in the store ([`Plan::learn`], [`Plan::forget`]), which shards the worker holds
//! ([`Plan::hold`]), and how pokes went ([`Plan::answered`]). It says which groups to poke now ([`Plan::due`]),
//! which sensors end ([`Plan::ends`]), and when it has something to do next ([`Plan::next_due`]).

mod answer;
mod due;
mod group;
mod loads;
mod outages;
mod sensors;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use answer::{Answer, Event, Job, Log, Outcome};
pub(crate) use due::Due;
use due::Order;
pub(crate) use group::GroupRef;
use group::{Groups, Member};
use outages::Outages;

use super::{Ending, Outage, Scope, SensorRecord};
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::lease::{LeaseRef, TaskId};
use crate::shard::{self, DEFAULT_CODES, code};
use crate::time::Timestamp;

/// Ends that the store did not accept, or whose tasks other transactions hold, are tried again after this time.
const ENDS_AGAIN: Duration = Duration::from_secs(1);

/// The most ends in one transaction.
const ENDS: usize = 10_000;

/// A transaction takes no further end once its texts exceed this in total.
const END_BYTES: usize = 64 << 20;

/// The rules by which due times, deadlines and ends are set. The setters of a [`crate::service::Poker`] say what each
/// means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) min_interval: Duration,
    pub(crate) max_pause: Duration,
    pub(crate) retry_window: Duration,
    /// How long a poke may take if no sensor says, and how long a last look may take.
    pub(crate) poke_timeout: Duration,
    pub(crate) max_poke_timeout: Duration,
    pub(crate) lease: Duration,
    pub(crate) shard_codes: NonZeroU32,
    pub(crate) shards: NonZeroU32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            min_interval: Duration::from_secs(1),
            max_pause: Duration::from_secs(600),
            retry_window: Duration::from_secs(130 * 60),
            poke_timeout: Duration::from_secs(10),
            max_poke_timeout: Duration::from_secs(600),
            lease: Duration::from_secs(30),
            shard_codes: DEFAULT_CODES,
            shards: NonZeroU32::MIN.saturating_add(15),
        }
    }
}

impl Rules {
    /// Returns how long a shard is without a worker at most while others hand it on. Who should have it may not come, and
    /// another one takes it within two thirds of a lease.
    fn handed_on(&self) -> Duration {
        self.lease - self.lease / 4
    }

    /// Returns the shard of a target.
    pub(crate) fn shard(&self, target: Fingerprint) -> u32 {
        shard::of(code(target, self.shard_codes), self.shard_codes, self.shards)
    }
}

/// What a worker looks after of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// Until when its sensors may be poked.
    pub(crate) until: Timestamp,
    pub(crate) scope: Scope,
}

/// What the store says of one sensor.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) sensor: SensorRecord,
    /// Since when no one has looked after its shard, if the shard was just taken over from a worker.
    pub(crate) left_at: Option<Timestamp>,
    /// Whether a log needs the whole sensor.
    pub(crate) whole: bool,
    /// Whether the worker pokes its kind.
    pub(crate) served: bool,
}

/// The sensors of a worker's shards, and all that is decided about them.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) rules: Rules,
    groups: Groups,
    members: HashMap<TaskId, Box<Member>>,
    /// Groups that are not asked, by when they are due.
    due: Order,
    /// Groups that are asked, by [`group::Group::overdue`].
    overdue: Order,
    /// When targets were last looked at whose sensors have all left since. One that comes soon waits as if they had stayed.
    looks: HashMap<Fingerprint, Timestamp>,
    /// Groups whose target was unreachable last time.
    outages: usize,
    stored: Outages,
    /// The sensors and the groups of each kind that has any.
    by_kind: BTreeMap<SensorKind, (usize, usize)>,
    /// Groups that are asked and that no sensor waits for any more.
    unwanted: usize,
    /// What it looks after, by shard.
    held: BTreeMap<u32, Share>,
    /// Ends that the store has not recorded yet.
    endings: BTreeMap<LeaseRef, Arc<Ending>>,
    /// Counts the readings of the store.
    turn: u64,
    /// The instant of the last turn.
    now: Option<Timestamp>,
}

impl Plan {
    /// Begins a turn. Returns false, and forgets everything but the pokes that run, if the clock was set back:
    /// due times and leases may then be far in the future.
    pub(crate) fn begin(&mut self, now: Timestamp) -> bool {
        let forward = self.now.is_none_or(|last| last <= now);
        if !forward {
            self.hold(BTreeMap::new());
            self.endings.clear();
            self.looks.clear();
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
        self.members.len()
    }

    /// Returns the number of targets.
    pub(crate) fn groups(&self) -> usize {
        self.by_kind.values().map(|(_, groups)| groups).sum()
    }

    /// Returns the number of targets that were unreachable last time.
    pub(crate) fn outages(&self) -> usize {
        self.outages
    }

    /// Returns the number of sensors and of targets of each kind that has any.
    pub(crate) fn by_kind(&self) -> &BTreeMap<SensorKind, (usize, usize)> {
        &self.by_kind
    }

    /// Returns the kind of a group.
    pub(crate) fn kind(&self, group: GroupRef) -> Option<&SensorKind> {
        self.groups.get(group).map(|found| &found.kind)
    }

    /// Returns true if a group waits for its answer that no sensor waits for.
    pub(crate) fn has_deserted(&self) -> bool {
        self.unwanted > 0
    }

    /// Returns true if no sensor waits for this group.
    pub(crate) fn is_deserted(&self, group: GroupRef) -> bool {
        self.groups.get(group).is_none_or(|found| found.members.is_empty())
    }

    /// Returns what it looks after, by shard.
    pub(crate) fn held(&self) -> &BTreeMap<u32, Share> {
        &self.held
    }

    /// Gives up the shards whose lease has ended. Returns true if there are any.
    pub(crate) fn expire(&mut self, now: Timestamp) -> bool {
        let held_before = self.held.len();
        self.held.retain(|_, share| now < share.until);
        let expired = self.held.len() < held_before;
        if expired {
            self.forget_lost();
        }
        expired
    }

    /// Looks after this from now on. Forgets the sensors of all others, but not the pokes that run: a target
    /// that comes back meanwhile must not be poked twice at a time.
    pub(crate) fn hold(&mut self, held: BTreeMap<u32, Share>) {
        let keeps = |(shard, share): (&u32, &Share)| {
            held.get(shard).is_some_and(|next| !share.scope.exceeds(&next.scope))
        };
        let lost = !self.held.iter().all(keeps);
        self.held = held;
        if lost {
            self.forget_lost();
        }
    }

    fn forget_lost(&mut self) {
        let lost = self.groups.iter().filter(|group| !self.is_mine(group.of.fingerprint, &group.kind));
        let lost: Vec<TaskId> = lost.flat_map(|group| group.members.iter().copied()).collect();
        lost.into_iter().for_each(|id| self.remove(id));
        // Of a shard that it does not hold as a whole, those of other kinds are not its own.
        let (held, rules, groups) = (&self.held, self.rules, &self.groups);
        self.stored.retain(|target| {
            let share = held.get(&rules.shard(target));
            share.is_some_and(|share| share.scope.is_whole() || !groups.with(target).is_empty())
        });
    }

    /// Returns true if it looks after sensors of this kind with this target.
    pub(crate) fn is_mine(&self, target: Fingerprint, kind: &SensorKind) -> bool {
        self.held.get(&self.rules.shard(target)).is_some_and(|share| share.scope.has(kind))
    }

    /// Returns the ends to record after this one, as many as one transaction takes. They stay until
    /// [`Self::forget`] is called. Ends of sensors that were forgotten or registered again are dropped.
    pub(crate) fn ends(&mut self, after: Option<LeaseRef>) -> Vec<(LeaseRef, Ending)> {
        if after.is_none() {
            let known = |lease: &LeaseRef| self.members.get(&lease.id).map(|member| member.lease);
            self.endings.retain(|lease, _| known(lease) == Some(*lease));
        }
        let mut bytes = 0;
        let mut fits = |ending: &Arc<Ending>| {
            let begun = bytes > END_BYTES;
            bytes += [&ending.value, &ending.message].into_iter().flatten().map(String::len).sum::<usize>();
            !begun
        };
        let later = match after {
            Some(after) => self.endings.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)),
            None => self.endings.range(..),
        };
        let chunk = later.take(ENDS).take_while(|(_, ending)| fits(ending));
        chunk.map(|(lease, ending)| (*lease, Ending::clone(ending))).collect()
    }

    /// Forgets a sensor whose end is settled: the store has recorded it, or it no longer waits there.
    pub(crate) fn forget(&mut self, lease: LeaseRef) {
        self.endings.remove(&lease);
        self.remove(lease.id);
    }

    /// Forgets everything, and the pokes that run as well. None of them may be answered afterwards.
    pub(crate) fn forget_pokes(&mut self) {
        *self = Self { rules: self.rules, turn: self.turn, now: self.now, ..Self::default() };
    }

    /// Returns when it next has something to do.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let overdue = self.overdue.earliest().map(|since| since + self.rules.poke_timeout);
        let ends = (!self.endings.is_empty()).then(|| now + ENDS_AGAIN);
        [self.due.earliest(), overdue, ends].into_iter().flatten().min()
    }
}

/// Memory for this many values is not worth giving back.
const FEW: usize = 1_024;

/// Releases memory that a once larger map no longer needs. Called after each removal, it costs little on
/// average.
fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 4 * map.len().max(FEW) {
        map.shrink_to(2 * map.len());
    }
}
