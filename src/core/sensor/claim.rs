//! Which shards a worker should hold.
//!
//! The shard codes are split evenly into a fixed number of shards. Each shard is leased by one worker at a
//! time. All workers compute who should hold what from the leases and the load recorded in each (see
//! `shard::balance`). Each then releases the shards that others should have, and takes its own free shards.
//! No worker takes a shard from a live holder, so a shard is poked by one worker at a time as long as leases
//! are valid.
//!
//! If no worker could renew for longer than a lease, all workers look dead to the first one that comes back.
//! For a third of a lease it takes only the shards that it held itself, and leaves the others theirs (see
//! `Comeback`). Any worker still missing after that is dead. A worker that renewed in time does not wait: it
//! takes a dead worker's shards when their leases end.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::setters;
use crate::id::{Holder, SensorKind};
use crate::shard::balance::{Move, Weighed, balance};
use crate::time::Timestamp;

/// A process that pokes sensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PokerRow {
    /// Its name.
    pub name: Holder,
    /// A random number that distinguishes it from others of the same name: one that runs beside it, or one
    /// that it replaced.
    #[serde(default)]
    pub incarnation: u64,
    /// The number of shard codes that it uses.
    pub codes: NonZeroU32,
    /// The number of shards into which it splits the codes.
    pub shards: NonZeroU32,
    /// Until when it counts as alive.
    pub expires_at: Timestamp,
    /// The kinds of sensors that it pokes; `None` for all kinds.
    #[serde(default)]
    pub kinds: Option<BTreeSet<SensorKind>>,
    /// The most shards that it holds; `None` means no limit.
    #[serde(default)]
    pub most_shards: Option<NonZeroU32>,
}

impl PokerRow {
    /// Creates a worker that splits `codes` into `shards` and counts as alive until this instant. It pokes
    /// all kinds, and its incarnation is 0.
    pub fn new(name: Holder, codes: NonZeroU32, shards: NonZeroU32, expires_at: Timestamp) -> Self {
        Self { name, incarnation: 0, codes, shards, expires_at, kinds: None, most_shards: None }
    }

    setters! {
        /// Sets the number that distinguishes it from others of the same name.
        incarnation: u64;
        /// Sets the only kinds that it pokes.
        kinds: Some(BTreeSet<SensorKind>);
        /// Sets the most shards that it holds.
        most_shards: Option<NonZeroU32>;
    }

    /// Returns true if it pokes sensors of this kind.
    pub fn serves(&self, kind: &SensorKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    /// Returns until when another incarnation of its name counts as alive; `None` if `live` contains no such
    /// incarnation.
    pub(crate) fn twin(&self, live: &[Self]) -> Option<Timestamp> {
        let twin = |other: &&Self| other.name == self.name && other.incarnation != self.incarnation;
        live.iter().find(twin).map(|twin| twin.expires_at)
    }
}

/// The lease of one shard, which says which worker pokes its sensors. Or a loan: the lease of one kind of a
/// shard whose holder does not serve that kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardLease {
    /// The shard: the index of its range in the even split of all codes.
    pub shard: u32,
    /// The worker that holds it; `None` if it was released.
    pub holder: Option<Holder>,
    /// The number of times that its holder changed.
    pub epoch: i64,
    /// When the lease expires. Without a holder: since when no worker has served the shard.
    pub expires_at: Timestamp,
    /// The kind, if it is a loan; `None` if it is the lease of the shard, for all kinds that are not lent.
    #[serde(default)]
    pub kind: Option<SensorKind>,
    /// The cost of its pokes, in microseconds per second, as its last holder measured it. 0 if the cost is
    /// unknown, and for a loan.
    #[serde(default)]
    pub load: u64,
}

impl ShardLease {
    /// Creates the lease of a shard from a store's data.
    pub fn new(shard: u32, holder: Option<Holder>, epoch: i64, expires_at: Timestamp) -> Self {
        Self { shard, holder, epoch, expires_at, kind: None, load: 0 }
    }

    setters! {
        /// Sets the kind that is lent.
        kind: Some(SensorKind);
        /// Sets the cost of its pokes.
        load: u64;
    }

    /// Returns true if no worker holds it at this instant.
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.holder.is_none() || now >= self.expires_at
    }

    /// Returns true if this worker is its holder, even if it has expired.
    pub(crate) fn is_of(&self, worker: &Holder) -> bool {
        self.holder.as_ref() == Some(worker)
    }

    /// Returns since when no worker has served it, for the worker that takes it at `now`. It may have been released
    /// after that instant, by a tick that began later but was done sooner. If the former holder's clock was wrong,
    /// at most the due times of one lease, `ttl`, count as served.
    pub(crate) fn left_at(&self, now: Timestamp, ttl: Duration) -> Timestamp {
        // What its holder lost only from memory is served until now.
        let latest = if self.holder.is_none() { now + ttl } else { now };
        self.expires_at.min(latest)
    }

    /// Returns the write that releases it. If it has ended, no worker has served it since its end.
    pub(crate) fn released(&self, now: Timestamp) -> ShardWrite {
        self.moved(None, self.expires_at.min(now))
    }

    /// Returns the write that changes its holder.
    pub(crate) fn moved(&self, to: Option<&Holder>, until: Timestamp) -> ShardWrite {
        let (holder, epoch) = (to.cloned(), self.epoch.saturating_add(1));
        ShardWrite::replacing(self, Self { holder, epoch, expires_at: until, ..self.clone() })
    }

    /// Returns the write that extends it until this instant.
    pub(crate) fn renewed(&self, until: Timestamp) -> ShardWrite {
        ShardWrite::replacing(self, Self { expires_at: until, ..self.clone() })
    }
}

/// A write that replaces a lease only if the lease still has the epoch and the end that were read. If a
/// renewal and a takeover were decided from the same lease, only the first therefore takes effect. A loan
/// without a holder is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardWrite {
    /// The epoch that the lease must have; 0 for a shard that was never held, and for a loan that does not
    /// exist.
    pub was: i64,
    /// The end that the lease must have; `None` accepts any.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The lease to write. A change of holder raises the epoch; a renewal keeps it.
    pub lease: ShardLease,
}

impl ShardWrite {
    /// Creates a write that replaces the lease with this epoch, whenever it ends.
    pub fn new(was: i64, lease: ShardLease) -> Self {
        Self { was, ended: None, lease }
    }

    /// Creates a write that replaces this lease only if it is unchanged.
    fn replacing(read: &ShardLease, lease: ShardLease) -> Self {
        Self { was: read.epoch, ended: Some(read.expires_at), lease }
    }

    setters! {
        /// Sets the end that the lease must have.
        ended: Some(Timestamp);
    }

    /// Returns true if this write may replace the known lease; `None` means that there is no lease.
    pub(crate) fn replaces(&self, known: Option<&ShardLease>) -> bool {
        let is_at = |lease: &ShardLease| self.ended.is_none_or(|ended| ended == lease.expires_at);
        known.map_or(0, |lease| lease.epoch) == self.was && known.is_none_or(is_at)
    }
}

/// A takeover of a shard, or of one kind of it, by a worker: one of the changes of holder that a store
/// remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardTake {
    /// The shard.
    pub shard: u32,
    /// The epoch of its lease since then.
    pub epoch: i64,
    /// The worker.
    pub holder: Holder,
    /// When it took the shard.
    pub at: Timestamp,
    /// Since when no worker had served it. A sensor that was registered later had no worker before.
    pub left_at: Timestamp,
    /// The number of shard codes that the worker uses.
    pub codes: NonZeroU32,
    /// The number of shards into which it splits the codes.
    pub shards: NonZeroU32,
    /// The kind, if only sensors of this kind changed hands.
    #[serde(default)]
    pub kind: Option<SensorKind>,
}

impl ShardTake {
    /// Creates the record of a takeover: this worker took this lease from another one at this instant.
    pub fn new(lease: &ShardLease, worker: &PokerRow, at: Timestamp) -> Self {
        let PokerRow { name: holder, codes, shards, .. } = worker.clone();
        let (shard, epoch, kind) = (lease.shard, lease.epoch, lease.kind.clone());
        Self { shard, epoch, holder, at, left_at: at, codes, shards, kind }
    }

    setters! {
        /// Sets since when no worker had served the shard.
        left_at: Timestamp;
    }
}

/// A worker's measurement of a shard's pokes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    /// The cost of the targets that were poked, in microseconds per second.
    pub(crate) known: u64,
    /// How often these targets are poked per million seconds, and how often those not poked yet will be.
    pub(crate) pokes: (u64, u64),
}

impl Load {
    /// Returns the new load of a lease whose load was `before`. Targets not poked yet count with their part
    /// of `before`. The measurement has a weight of a quarter, so that a short peak does not move shards.
    fn after(self, before: u64) -> u64 {
        let (known, unknown) = (u128::from(self.pokes.0), u128::from(self.pokes.1));
        let rest = u128::from(before) * unknown / (known + unknown).max(1);
        let measured = self.known.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX));
        // SQL has no larger integers.
        let measured = measured.min(i64::MAX.unsigned_abs());
        if before == 0 { measured } else { before - before / 4 + measured / 4 }
    }
}

/// A worker's measurements, by shard.
pub(crate) type Loads = BTreeMap<u32, Load>;

/// A worker's start, or its return after it failed to renew in time.
///
/// All other workers may have been delayed as well, for example because the store was unreachable. So for a
/// third of a lease this worker does not take shards whose holders may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comeback {
    at: Timestamp,
    /// Holders whose leases had ended by this instant were gone before this worker was.
    gone_by: Timestamp,
}

impl Comeback {
    /// Returns the comeback of a worker that renews at `now` and, by its last renewal, counts as alive until
    /// `alive_until`. Returns `None` if it renews in time: less than two thirds of a lease after its last
    /// renewal.
    pub(crate) fn of(alive_until: Option<Timestamp>, now: Timestamp, ttl: Duration) -> Option<Self> {
        match alive_until {
            None => Some(Self { at: now, gone_by: Timestamp::MIN }),
            Some(until) if until > now + ttl / 3 => None,
            Some(until) => Some(Self { at: now, gone_by: until - ttl }),
        }
    }

    /// Returns true until the other workers have had time to come back.
    pub(crate) fn goes_on(&self, now: Timestamp, ttl: Duration) -> bool {
        self.at <= now && now < self.at + ttl / 3
    }

    fn awaits_the_holder_of(&self, lease: &ShardLease) -> bool {
        self.gone_by < lease.expires_at
    }
}

/// The inputs from which one worker decides what it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) me: &'a PokerRow,
    pub(crate) now: Timestamp,
    pub(crate) ttl: Duration,
    pub(crate) comeback: Option<Comeback>,
    pub(crate) loads: &'a Loads,
    /// The free shards that it left to others in its last claim.
    pub(crate) left: &'a Left,
}

/// Free shards that go to other workers, with their epochs.
pub(crate) type Left = BTreeSet<(u32, i64)>;

impl Claim<'_> {
    /// Returns what to write, and the free shards that it leaves to others. `leases` are those of all shards
    /// that were ever held. `live` are all live workers by name, including this one.
    pub(crate) fn writes(&self, leases: &[ShardLease], live: &[PokerRow]) -> (Vec<ShardWrite>, Left) {
        let (now, name) = (self.now, &self.me.name);
        let mut held: BTreeMap<u32, &ShardLease> = BTreeMap::new();
        let (mut writes, mut left) = (Vec::new(), Left::new());
        // Keeping a shard is cheap, but a worker that takes one must read all its waiting sensors. So the
        // worker keeps what it held even if the lease has ended. A shard beyond `shards` was held under
        // another split and is released.
        for lease in leases.iter().filter(|lease| lease.is_of(name)) {
            match lease.shard < self.me.shards.get() && held.len() < most(self.me) {
                true => drop(held.insert(lease.shard, lease)),
                false => writes.push(lease.released(now)),
            }
        }
        let (plan, known) = (self.plan(leases, live, &held), by_shard(leases));
        let is_me = |to: usize| live.get(to).is_some_and(|worker| worker.name == *name);
        // It keeps the shards that do not move. Its own free shards come before those that others did not take.
        let kept = held.keys().filter(|shard| plan.get(shard).is_none_or(|to| is_me(*to))).count();
        let gained = plan.iter().filter(|(shard, to)| is_me(**to) && !held.contains_key(shard)).count();
        let mut room = most(self.me).saturating_sub(kept + gained);
        for (shard, to) in plan {
            let is_mine = is_me(to);
            let lease = known.get(&shard).copied();
            if let Some(lease) = held.get(&shard) {
                if !is_mine {
                    writes.push(lease.released(now));
                    held.remove(&shard);
                }
            } else if lease.is_none_or(|lease| lease.is_free(now)) {
                // If a worker has not taken a shard that was left to it, any other worker takes the shard.
                let of = (shard, lease.map_or(0, |lease| lease.epoch));
                if is_mine || self.left.contains(&of) && room > 0 {
                    room -= usize::from(!is_mine);
                    let never = ShardLease::new(shard, None, 0, now);
                    let write = lease.unwrap_or(&never).moved(Some(name), now + self.ttl);
                    writes.push(ShardWrite { ended: lease.map(|lease| lease.expires_at), ..write });
                } else {
                    left.insert(of);
                }
            }
        }
        // A renewal keeps the epoch, and every change of holder raises it. If two workers decide on the same state,
        // only the first write takes effect.
        writes.extend(held.values().map(|lease| {
            let mut write = lease.renewed(now + self.ttl);
            if let Some(load) = self.loads.get(&lease.shard) {
                write.lease.load = load.after(lease.load);
            }
            write
        }));
        (writes, left)
    }

    /// Returns who should hold each shard that is free or that moves.
    fn plan(
        &self,
        leases: &[ShardLease],
        live: &[PokerRow],
        held: &BTreeMap<u32, &ShardLease>,
    ) -> BTreeMap<u32, usize> {
        let place = |name: &Holder| live.iter().position(|worker| worker.name == *name);
        let me = place(&self.me.name);
        // A shard whose kinds its new holder does not serve comes back as loans, so moving it would not help.
        let are_alike = live.iter().all(|worker| worker.kinds == self.me.kinds);
        let load = |lease: &ShardLease| if are_alike { lease.load } else { 0 };
        let most: Vec<usize> = live.iter().map(most).collect();
        let (left, known) = (self.left_to_others(leases), by_shard(leases));
        let weighed = |shard: u32| {
            let lease = known.get(&shard).copied();
            let worker = match lease {
                Some(_) if held.contains_key(&shard) => me,
                // It is being released, or its holder may come back.
                Some(lease) if lease.is_of(&self.me.name) || left.contains(&shard) => return None,
                // It stays with its holder if that worker is alive. Otherwise its lease has yet to end.
                Some(lease) if !lease.is_free(self.now) => Some(lease.holder.as_ref().and_then(place)?),
                _ => None,
            };
            Some(Weighed { shard, worker, load: lease.map_or(0, load) })
        };
        let weighed: Vec<Weighed> = (0..self.me.shards.get()).filter_map(weighed).collect();
        // If a shard moves more than once, its last move counts.
        balance(&weighed, &most).into_iter().map(|Move { shard, to, .. }| (shard, to)).collect()
    }

    /// Returns the shards that are free but must not be taken yet, because their holders may come back.
    ///
    /// A worker that holds nothing, usually a new one, replaces one of the holders: the one whose lease ended
    /// first. So it has work at once. A fleet that restarts under other names divides what the old fleet
    /// held.
    fn left_to_others(&self, leases: &[ShardLease]) -> BTreeSet<u32> {
        let Some(comeback) = self.comeback else { return BTreeSet::new() };
        let me = &self.me.name;
        let others = |lease: &&ShardLease| lease.holder.is_some() && !lease.is_of(me);
        let ended = leases.iter().filter(others).filter(|lease| lease.is_free(self.now));
        let left = ended.filter(|lease| comeback.awaits_the_holder_of(lease));
        let replaced = match leases.iter().any(|lease| lease.is_of(me)) {
            true => None,
            false => left.clone().min_by_key(|lease| (lease.expires_at, lease.shard)),
        };
        let replaced = replaced.and_then(|lease| lease.holder.as_ref());
        left.filter(|lease| lease.holder.as_ref() != replaced).map(|lease| lease.shard).collect()
    }
}

fn most(worker: &PokerRow) -> usize {
    worker.most_shards.map_or(usize::MAX, |most| most.get() as usize)
}

fn by_shard(leases: &[ShardLease]) -> BTreeMap<u32, &ShardLease> {
    leases.iter().map(|lease| (lease.shard, lease)).collect()
}

#[cfg(test)]
mod tests;
