//! Which shards a worker should hold.
//!
//! The shard codes are split evenly into a fixed number of shards. Each shard is leased by one worker at a
//! time. A worker that joins, leaves or dies changes every worker's quota. Each worker then releases what
//! exceeds its quota and takes what is free, until all hold their quotas. No worker takes a shard from a live
//! holder: a shard is poked by one worker at a time as long as leases hold.
//!
//! If no worker could renew for longer than a lease, all workers look dead to the first one that comes back.
//! For a third of a lease it takes only what it held itself and leaves the others what they held (see
//! `Comeback`). Any worker still missing after that is dead. A worker that renewed in time does not wait: it
//! takes what a dead worker held when the lease ends.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::setters;
use crate::id::{Holder, SensorKind};
use crate::time::Timestamp;

/// A process that pokes sensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Worker {
    /// Its name.
    pub name: Holder,
    /// A random number that distinguishes it from others of its name: one that runs beside it, or that it
    /// replaced.
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
}

impl Worker {
    /// Creates a worker that splits `codes` into `shards` and counts as alive until this instant. It pokes all
    /// kinds, and its incarnation is 0.
    pub fn new(name: Holder, codes: NonZeroU32, shards: NonZeroU32, expires_at: Timestamp) -> Self {
        Self { name, incarnation: 0, codes, shards, expires_at, kinds: None }
    }

    setters! {
        /// Sets the number that distinguishes it from others of its name.
        incarnation: u64;
        /// Sets the only kinds that it pokes.
        kinds: Some(BTreeSet<SensorKind>);
    }

    /// Returns true if it pokes sensors of this kind.
    pub fn serves(&self, kind: &SensorKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    /// Returns until when another incarnation of its name counts as alive. Returns `None` if these workers
    /// include no such incarnation.
    pub(crate) fn twin(&self, live: &[Self]) -> Option<Timestamp> {
        let twin = |other: &&Self| other.name == self.name && other.incarnation != self.incarnation;
        live.iter().find(twin).map(|twin| twin.expires_at)
    }
}

/// The lease of one shard: which worker pokes its sensors. Or a loan: the lease of one kind of a shard, whose holder does
/// not serve that kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardLease {
    /// The shard: the index of its range in the even split of all codes.
    pub shard: u32,
    /// Its worker; `None` if it was released.
    pub holder: Option<Holder>,
    /// The number of changes of holder.
    pub epoch: i64,
    /// When the lease expires.
    pub expires_at: Timestamp,
    /// The kind, if it is a loan; `None` if it is the lease of the shard, for all kinds that are not lent.
    #[serde(default)]
    pub kind: Option<SensorKind>,
}

impl ShardLease {
    /// Creates the lease of a shard as a store read it.
    pub fn new(shard: u32, holder: Option<Holder>, epoch: i64, expires_at: Timestamp) -> Self {
        Self { shard, holder, epoch, expires_at, kind: None }
    }

    setters! {
        /// Sets the kind that is lent.
        kind: Some(SensorKind);
    }

    /// Returns true if no worker holds it at this instant.
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.holder.is_none() || now >= self.expires_at
    }
}

/// A write that replaces a lease, if the lease still has the epoch and the end that it was read with. So of a renewal and
/// a takeover that were decided from the same lease, only the first takes effect. A loan without a holder is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardWrite {
    /// The epoch it must have; 0 for a shard that was never held, and for a loan that does not exist.
    pub was: i64,
    /// The end it must have; `None` for any.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The lease to write. A change of holder has a larger epoch; a renewal keeps it.
    pub lease: ShardLease,
}

impl ShardWrite {
    /// Creates a write that replaces the lease with this epoch, whenever it ends.
    pub fn new(was: i64, lease: ShardLease) -> Self {
        Self { was, ended: None, lease }
    }

    /// Creates a write that replaces this lease, as long as nothing has changed it.
    pub(crate) fn replacing(read: &ShardLease, lease: ShardLease) -> Self {
        Self { was: read.epoch, ended: Some(read.expires_at), lease }
    }

    setters! {
        /// Sets the end that the lease must have.
        ended: Some(Timestamp);
    }

    /// Returns true if this lease may be replaced; `None` if there is none.
    pub(crate) fn replaces(&self, known: Option<&ShardLease>) -> bool {
        let is_at = |lease: &ShardLease| self.ended.is_none_or(|ended| ended == lease.expires_at);
        known.map_or(0, |lease| lease.epoch) == self.was && known.is_none_or(is_at)
    }
}

/// A shard that a worker took, or a kind of it: one of the changes of holder that a store remembers.
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
    /// Since when no one had looked after it: a sensor that registered later was no one's before.
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
    /// Returns what to remember of this lease, which this worker took at this instant from another one.
    pub fn new(lease: &ShardLease, worker: &Worker, at: Timestamp) -> Self {
        let Worker { name: holder, codes, shards, .. } = worker.clone();
        let (shard, epoch, kind) = (lease.shard, lease.epoch, lease.kind.clone());
        Self { shard, epoch, holder, at, left_at: at, codes, shards, kind }
    }

    setters! {
        /// Sets since when no one had looked after the shard.
        left_at: Timestamp;
    }
}

/// Returns how many of `shards` the worker at `place` among `workers` live ones should hold. Quotas differ by
/// at most one.
fn quota(shards: u32, workers: usize, place: usize) -> u32 {
    let workers = u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
    let extra = u32::try_from(place).is_ok_and(|place| place < shards % workers);
    shards / workers + u32::from(extra)
}

/// A worker's start, or its return after it did not renew in time.
///
/// Perhaps all others were held up as well, for example because the store could not be reached. So for a
/// third of a lease it does not take what others may come back for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comeback {
    at: Timestamp,
    /// Holders whose leases had ended by then were gone before this worker was.
    gone_by: Timestamp,
}

impl Comeback {
    /// Returns the comeback of a worker that renews at `now` and counts as alive until `alive_until` by its
    /// last renewal. Returns `None` if it renews in time: less than two thirds of a lease after the last
    /// time.
    pub(crate) fn of(alive_until: Option<Timestamp>, now: Timestamp, ttl: Duration) -> Option<Self> {
        match alive_until {
            None => Some(Self { at: now, gone_by: Timestamp::MIN }),
            Some(until) if until > now + ttl / 3 => None,
            Some(until) => Some(Self { at: now, gone_by: until - ttl }),
        }
    }

    /// Returns true until the others had their time to come back.
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
    pub(crate) me: &'a Holder,
    pub(crate) now: Timestamp,
    pub(crate) ttl: Duration,
    pub(crate) shards: u32,
    /// The most shards that it holds, whatever its quota.
    pub(crate) most: u32,
    pub(crate) comeback: Option<Comeback>,
}

impl Claim<'_> {
    /// Returns the writes, from the leases of all shards that were ever held, without loans, and all live
    /// workers, with or without this one.
    pub(crate) fn writes(&self, leases: &[ShardLease], live: &[Worker]) -> Vec<ShardWrite> {
        let Self { me, now, shards, .. } = *self;
        let mut names: Vec<&Holder> = live.iter().map(|worker| &worker.name).chain([me]).collect();
        names.sort_unstable();
        names.dedup();
        let place = names.iter().position(|name| *name == me).unwrap_or(0);
        let quota = quota(shards, names.len(), place).min(self.most);
        let expires_at = now + self.ttl;

        // What it holds comes first. Keeping a shard is cheap, but a worker that takes one reads all its
        // waiting sensors. A shard beyond `shards` was held under another split and is released. A renewal
        // keeps the epoch, and every change of holder raises it. If two workers decide on the same state,
        // only the first write takes effect.
        let mut writes = Vec::new();
        let mut held = 0;
        for lease in leases.iter().filter(|lease| lease.holder.as_ref() == Some(me)) {
            let keep = lease.shard < shards && held < quota;
            held += u32::from(keep);
            let next = if keep {
                ShardLease::new(lease.shard, Some(me.clone()), lease.epoch, expires_at)
            } else {
                ShardLease::new(lease.shard, None, lease.epoch + 1, now)
            };
            writes.push(ShardWrite::replacing(lease, next));
        }
        let left = self.left_to_others(leases);
        let known = |shard: u32| leases.iter().find(|lease| lease.shard == shard);
        for shard in 0..shards {
            if held >= quota {
                break;
            }
            let mine = |epoch| ShardLease::new(shard, Some(me.clone()), epoch, expires_at);
            writes.push(match known(shard) {
                Some(lease) if lease.holder.as_ref() == Some(me) || !lease.is_free(now) => continue,
                Some(_) if left.contains(&shard) => continue,
                Some(lease) => ShardWrite::replacing(lease, mine(lease.epoch + 1)),
                None => ShardWrite::new(0, mine(1)),
            });
            held += 1;
        }
        writes
    }

    /// Returns the shards that are free but must not be taken yet, because their holders may come back.
    ///
    /// A worker that holds nothing, usually a new one, replaces one of the holders: the one whose lease ended
    /// first. So it has work at once. A fleet that restarts under other names shares out what the old fleet
    /// held.
    fn left_to_others(&self, leases: &[ShardLease]) -> BTreeSet<u32> {
        let Some(comeback) = self.comeback else { return BTreeSet::new() };
        let others = |lease: &&ShardLease| lease.holder.as_ref().is_some_and(|holder| holder != self.me);
        let ended = leases.iter().filter(others).filter(|lease| lease.is_free(self.now));
        let left = ended.filter(|lease| comeback.awaits_the_holder_of(lease));
        let has_some = leases.iter().any(|lease| lease.holder.as_ref() == Some(self.me));
        let replaced = match has_some {
            true => None,
            false => left.clone().min_by_key(|lease| (lease.expires_at, lease.shard)),
        };
        let replaced = replaced.and_then(|lease| lease.holder.as_ref());
        left.filter(|lease| lease.holder.as_ref() != replaced).map(|lease| lease.shard).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::DEFAULT_CODES;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TTL: Duration = Duration::from_micros(10);

    /// Returns what worker `me` writes if it renews in time.
    fn claims(
        me: &Holder,
        now: Timestamp,
        ttl: Duration,
        shards: u32,
        leases: &[ShardLease],
        live: &[Worker],
    ) -> Vec<ShardWrite> {
        Claim { me, now, ttl, shards, most: u32::MAX, comeback: None }.writes(leases, live)
    }

    #[test]
    fn quotas_differ_by_at_most_one_and_alone_a_worker_takes_all() {
        assert_eq!([0, 1, 2].map(|place| quota(5, 3, place)), [2, 2, 1]);
        let me = Holder::new("a").unwrap();
        assert_eq!(claims(&me, Timestamp::UNIX_EPOCH, TTL, 5, &[], &[]).len(), 5);
    }

    fn apply(state: &mut BTreeMap<u32, ShardLease>, writes: Vec<ShardWrite>) {
        for write in writes {
            let epoch = state.get(&write.lease.shard).map_or(0, |lease| lease.epoch);
            assert_eq!(epoch, write.was);
            state.insert(write.lease.shard, write.lease);
        }
    }

    proptest! {
        /// Whichever workers join, leave or die: after two rounds and a time to live, all shards are held, by
        /// quota.
        #[test]
        fn settles_at_the_quotas(
            shards in 1_u32..20,
            first in proptest::collection::btree_set(0_u8..8, 1..6),
            second in proptest::collection::btree_set(0_u8..8, 1..6),
        ) {
            let mut state = BTreeMap::new();
            let mut now = Timestamp::UNIX_EPOCH;
            for workers in [first, second] {
                now += TTL * 2;
                let names: Vec<Holder> =
                    workers.iter().map(|n| Holder::new(format!("w{n}")).unwrap()).collect();
                let split = NonZeroU32::new(shards).unwrap();
                let worker = |name: &Holder| {
                    Worker::new(name.clone(), DEFAULT_CODES, split, now + TTL)
                };
                let live: Vec<Worker> = names.iter().map(worker).collect();
                for _ in 0..2 {
                    for name in &names {
                        let leases: Vec<_> = state.values().cloned().collect();
                        let writes = claims(name, now, TTL, shards, &leases, &live);
                        for write in &writes {
                            let old = state.get(&write.lease.shard);
                            let taken = old.is_some_and(|old: &ShardLease| {
                                !old.is_free(now) && old.holder.as_ref() != Some(name)
                            });
                            prop_assert!(!taken, "took a shard from a live holder");
                        }
                        apply(&mut state, writes);
                    }
                }
                for (place, name) in names.iter().enumerate() {
                    let held = state.values().filter(|lease| lease.holder.as_ref() == Some(name)).count();
                    prop_assert_eq!(held, quota(shards, names.len(), place) as usize);
                }
                prop_assert!(state.values().all(|lease| !lease.is_free(now)));
                prop_assert_eq!(state.len(), shards as usize);
            }
        }
    }

    /// Returns how many shards it holds.
    fn held(state: &BTreeMap<u32, ShardLease>, name: &Holder) -> usize {
        state.values().filter(|lease| lease.holder.as_ref() == Some(name)).count()
    }

    proptest! {
        /// After a stall of all workers, they may come back in any order, under old names and new ones. While
        /// others may still come, no worker holds more than the largest quota of the fleet before. A third of
        /// a lease later all shards are held by quota.
        #[test]
        fn after_a_stall_shards_are_left_to_others_and_none_for_long(
            shards in 1_u32..40,
            before in 1_u8..8,
            stalled in 10_i64..1_000,
            back in proptest::sample::subsequence((0_u8..16).collect::<Vec<_>>(), 1..9).prop_shuffle(),
        ) {
            let ttl = Duration::from_micros(9);
            let split = NonZeroU32::new(shards).unwrap();
            let name = |n: &u8| Holder::new(format!("w{n}")).unwrap();
            let worker = |n: &u8, now| Worker::new(name(n), DEFAULT_CODES, split, now + ttl);
            let (mut state, start) = (BTreeMap::new(), Timestamp::UNIX_EPOCH);
            let fleet: Vec<u8> = (0..before).collect();
            let live: Vec<Worker> = fleet.iter().map(|n| worker(n, start)).collect();
            for n in &fleet {
                let leases: Vec<_> = state.values().cloned().collect();
                apply(&mut state, claims(&name(n), start, ttl, shards, &leases, &live));
            }
            let most = quota(shards, fleet.len(), 0) as usize;

            let now = Timestamp::from_micros(stalled);
            let mut live = Vec::new();
            for n in &back {
                let alive_until = fleet.contains(n).then(|| start + ttl);
                let me = name(n);
                let comeback = Comeback::of(alive_until, now, ttl);
                prop_assert!(comeback.is_some_and(|comeback| comeback.goes_on(now, ttl)));
                let leases: Vec<_> = state.values().cloned().collect();
                let claim = Claim { me: &me, now, ttl, shards, most: u32::MAX, comeback };
                apply(&mut state, claim.writes(&leases, &live));
                live.push(worker(n, now));
                prop_assert!(held(&state, &me) <= most, "{} of at most {}", held(&state, &me), most);
            }
            let later = now + ttl / 3;
            prop_assert!(!Comeback::of(None, now, ttl).unwrap().goes_on(later, ttl));
            prop_assert_eq!(Comeback::of(Some(now + ttl), later, ttl), None);
            live.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            for _ in 0..2 {
                for worker in &live {
                    let leases: Vec<_> = state.values().cloned().collect();
                    apply(&mut state, claims(&worker.name, later, ttl, shards, &leases, &live));
                }
            }
            for (place, worker) in live.iter().enumerate() {
                prop_assert_eq!(held(&state, &worker.name), quota(shards, live.len(), place) as usize);
            }
            prop_assert!(state.values().all(|lease| !lease.is_free(later)));
        }
    }

    #[test]
    fn gives_up_shards_beyond_a_smaller_number_of_shards() {
        let me = Holder::new("a").unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let mut state = BTreeMap::new();
        apply(&mut state, claims(&me, now, TTL, 4, &[], &[]));
        let leases: Vec<_> = state.values().cloned().collect();
        apply(&mut state, claims(&me, now, TTL, 2, &leases, &[]));
        let held: Vec<u32> = state.values().filter(|l| l.holder.is_some()).map(|l| l.shard).collect();
        assert_eq!(held, [0, 1]);
    }
}
