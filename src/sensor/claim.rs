//! Which shards a worker should hold.
//!
//! The shard codes are split evenly into a fixed number of shards. Each shard is leased by one worker at a time. A worker
//! that joins, leaves or dies changes everybody's quota; each worker then releases what it has too much and takes what
//! is free, until all hold their quotas. Nobody takes a shard from a live holder: a shard is poked by one worker at
//! a time as long as leases hold.

use std::num::NonZeroU32;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::Holder;
use crate::shard::ShardLimit;
use crate::time;

/// A process that pokes sensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Worker {
    /// Its name.
    pub name: Holder,
    /// The number of shard codes that it reckons with.
    pub codes: ShardLimit,
    /// Into how many shards it splits the codes.
    pub shards: NonZeroU32,
    /// Until when it counts as alive.
    pub expires_at: DateTime<Utc>,
}

impl Worker {
    /// A worker that splits `codes` into `shards`, and counts as alive until this instant.
    pub fn new(name: Holder, codes: ShardLimit, shards: NonZeroU32, expires_at: DateTime<Utc>) -> Self {
        Self { name, codes, shards, expires_at }
    }
}

/// Who pokes the sensors of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardLease {
    /// The shard: the index of its range in the even split of all codes.
    pub shard: u32,
    /// Its worker; none if it was released.
    pub holder: Option<Holder>,
    /// Counts the changes of holder.
    pub epoch: i64,
    /// When the lease expires.
    pub expires_at: DateTime<Utc>,
}

impl ShardLease {
    /// A lease as a store read it.
    pub fn new(shard: u32, holder: Option<Holder>, epoch: i64, expires_at: DateTime<Utc>) -> Self {
        Self { shard, holder, epoch, expires_at }
    }

    /// True if nobody holds it at this instant.
    pub fn is_free(&self, now: DateTime<Utc>) -> bool {
        self.holder.is_none() || now >= self.expires_at
    }
}

/// Replaces the lease of a shard, if it still has the epoch that it was read with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardWrite {
    /// The epoch it must have; 0 for a shard that was never held.
    pub was: i64,
    /// What is written. A change of holder has a larger epoch; a renewal keeps it.
    pub lease: ShardLease,
}

impl ShardWrite {
    /// Replaces the lease that had this epoch.
    pub fn new(was: i64, lease: ShardLease) -> Self {
        Self { was, lease }
    }
}

/// How many of `shards` the worker at `place` among `workers` live ones should hold: they differ by at most one.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::quota;
/// assert_eq!([0, 1, 2].map(|place| quota(5, 3, place)), [2, 2, 1]);
/// ```
pub fn quota(shards: u32, workers: usize, place: usize) -> u32 {
    let workers = u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
    let extra = u32::try_from(place).is_ok_and(|place| place < shards % workers);
    shards / workers + u32::from(extra)
}

/// What worker `me` should write: renewals of what it holds, releases of what it holds beyond its quota, claims of what
/// is free.
///
/// `leases` are all shards that were ever held, `live` all live workers, with or without `me`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::sensor::claims;
/// use stationmaster::time::from_micros;
/// let writes = claims(&"a".try_into()?, from_micros(0), Duration::from_secs(30), 5, &[], &[]);
/// assert_eq!(writes.len(), 5, "alone, a worker takes all shards");
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
pub fn claims(
    me: &Holder,
    now: DateTime<Utc>,
    ttl: Duration,
    shards: u32,
    leases: &[ShardLease],
    live: &[Worker],
) -> Vec<ShardWrite> {
    let mut names: Vec<&Holder> = live.iter().map(|worker| &worker.name).chain([me]).collect();
    names.sort_unstable();
    names.dedup();
    let place = names.iter().position(|name| *name == me).unwrap_or(0);
    let quota = quota(shards, names.len(), place);
    let expires_at = time::add(now, ttl);

    let mut writes = Vec::new();
    let mut held = 0;
    let mine = |lease: &&ShardLease| lease.holder.as_ref() == Some(me);
    for lease in leases.iter().filter(mine) {
        let keep = lease.shard < shards && held < quota;
        held += u32::from(keep);
        let next = if keep {
            ShardLease::new(lease.shard, Some(me.clone()), lease.epoch, expires_at)
        } else {
            ShardLease::new(lease.shard, None, lease.epoch + 1, now)
        };
        writes.push(ShardWrite::new(lease.epoch, next));
    }
    let known = |shard: u32| leases.iter().find(|lease| lease.shard == shard);
    for shard in 0..shards {
        if held >= quota {
            break;
        }
        let was = match known(shard) {
            Some(lease) if lease.holder.as_ref() == Some(me) || !lease.is_free(now) => continue,
            Some(lease) => lease.epoch,
            None => 0,
        };
        held += 1;
        writes.push(ShardWrite::new(was, ShardLease::new(shard, Some(me.clone()), was + 1, expires_at)));
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TTL: Duration = Duration::from_micros(10);

    fn apply(state: &mut BTreeMap<u32, ShardLease>, writes: Vec<ShardWrite>) {
        for write in writes {
            let epoch = state.get(&write.lease.shard).map_or(0, |lease| lease.epoch);
            assert_eq!(epoch, write.was);
            state.insert(write.lease.shard, write.lease);
        }
    }

    proptest! {
        /// Whoever joins, leaves or dies: after two rounds and a time to live, all shards are held, by quota.
        #[test]
        fn settles_at_the_quotas(
            shards in 1_u32..20,
            first in proptest::collection::btree_set(0_u8..8, 1..6),
            second in proptest::collection::btree_set(0_u8..8, 1..6),
        ) {
            let mut state = BTreeMap::new();
            let mut now = time::from_micros(0);
            for workers in [first, second] {
                now = time::add(now, TTL * 2);
                let names: Vec<Holder> =
                    workers.iter().map(|n| Holder::new(format!("w{n}")).unwrap()).collect();
                let split = NonZeroU32::new(shards).unwrap();
                let worker = |name: &Holder| {
                    Worker::new(name.clone(), ShardLimit::default(), split, time::add(now, TTL))
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

    #[test]
    fn gives_up_shards_beyond_a_smaller_number_of_shards() {
        let me = Holder::new("a").unwrap();
        let now = time::from_micros(0);
        let mut state = BTreeMap::new();
        apply(&mut state, claims(&me, now, TTL, 4, &[], &[]));
        let leases: Vec<_> = state.values().cloned().collect();
        apply(&mut state, claims(&me, now, TTL, 2, &leases, &[]));
        let held: Vec<u32> = state.values().filter(|l| l.holder.is_some()).map(|l| l.shard).collect();
        assert_eq!(held, [0, 1]);
    }
}
