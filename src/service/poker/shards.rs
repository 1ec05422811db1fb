//! Which shards a poker holds.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::options::PokerOptions;
use super::worker::Poker;
use crate::error::{Invalid, Result};
use crate::id::Holder;
use crate::sensor::{ShardLease, Worker, claims};
use crate::shard::{ShardRange, range};
use crate::store::{Moved, StoreExt};
use crate::time;

/// How long workers that expired can still be seen in the store.
const WORKERS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The most workers that one renewal forgets.
const WORKERS_FORGOTTEN: usize = 100;

/// Shards that a worker took, each with the instant from which on nobody looked after it.
pub(super) type Gained = BTreeMap<u32, DateTime<Utc>>;

impl Poker {
    /// Renews its life and its shards if it is time to, and forgets the sensors of shards it lost. Answers the shards
    /// whose sensors it does not have in memory yet, each with the instant from which on nobody looked after it.
    pub(super) fn hold_shards(&mut self, now: DateTime<Utc>) -> Result<Gained> {
        let held_before = self.shards.len();
        self.shards.retain(|_, until| now < *until);
        if self.shards.len() < held_before {
            // Others may have them now, whether or not the store takes the renewal.
            self.keep_only_held();
        } else if self.renew_at.is_some_and(|at| now < at) {
            return Ok(Gained::new());
        }
        let (name, options) = (&self.name, &self.options);
        let expires_at = time::add(now, options.lease);
        let (held, freed): (Gained, Option<DateTime<Utc>>) = self.store.write(|tx| {
            let mut live = tx.live_workers(now)?;
            agree(name, options, &live)?;
            let me = Worker::new(name.clone(), options.codes, options.shards, expires_at);
            tx.put_worker(&me)?;
            live.retain(|worker| worker.name != me.name);
            live.push(me);
            live.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            tx.forget_workers(time::sub(now, WORKERS_ARE_KEPT), WORKERS_FORGOTTEN)?;
            let leases = tx.shard_leases()?;
            let writes = claims(name, now, options.lease, options.shards.get(), &leases, &live);
            let written = tx.put_shards_if_unchanged(&writes)?;
            let mine = writes.into_iter().zip(written).filter(|(write, written)| {
                *written == Moved::Yes && write.lease.holder.as_ref() == Some(name)
            });
            let others =
                leases.iter().filter(|lease| lease.holder.as_ref() != Some(name) && !lease.is_free(now));
            let freed = others.map(|lease| lease.expires_at).min();
            let since = |shard: u32| {
                let lease = leases.iter().find(|lease| lease.shard == shard);
                lease.map_or(now, |lease| left_alone_since(lease, options.lease, now))
            };
            Ok((mine.map(|(write, _)| (write.lease.shard, since(write.lease.shard))).collect(), freed))
        })?;
        let held_still = self.shards.len();
        self.shards.retain(|shard, _| held.contains_key(shard));
        if self.shards.len() < held_still {
            self.keep_only_held();
        }
        let before = std::mem::take(&mut self.shards);
        self.shards = held.keys().map(|shard| (*shard, expires_at)).collect();
        let gained = held.into_iter().filter(|(shard, _)| !before.contains_key(shard)).collect();
        // What a dead worker held is claimed the instant its lease ends.
        let renew_at = time::add(now, self.options.lease / 3);
        self.renew_at = Some(freed.map_or(renew_at, |at| at.min(renew_at)));
        Ok(gained)
    }

    /// Forgets the sensors of shards that are not held.
    pub(super) fn keep_only_held(&mut self) {
        let (codes, kept) = (self.options.codes, self.ranges(self.shards.keys().copied()));
        self.groups.retain(|print| kept.iter().any(|range| range.contains(codes.code(print))));
        self.withdraw();
    }

    pub(super) fn ranges(&self, shards: impl Iterator<Item = u32>) -> Vec<ShardRange> {
        shards.map(|shard| range(self.options.codes, self.options.shards, shard)).collect()
    }
}

/// Since when nobody has looked after a shard that is taken now: since it was released, or the lease of its dead holder ended. A
/// shard that was left alone for longer than workers need to hand it on is taken up as if it had been looked after until
/// now: after a pause of all workers not everything is poked at once.
fn left_alone_since(lease: &ShardLease, length: Duration, now: DateTime<Utc>) -> DateTime<Utc> {
    let handed_on = time::since(now, lease.expires_at) <= length / 2;
    if handed_on { lease.expires_at.min(now) } else { now }
}

/// Refuses to share sensors with a worker that splits them otherwise.
fn agree(me: &Holder, options: &PokerOptions, live: &[Worker]) -> Result<()> {
    let same = |worker: &&Worker| worker.codes == options.codes && worker.shards == options.shards;
    match live.iter().find(|worker| worker.name != *me && !same(worker)) {
        None => Ok(()),
        Some(Worker { name, codes, shards, .. }) => {
            let (codes, shards) = (codes.get(), shards.get());
            Err(Invalid::Shards { other: name.clone(), codes, shards }.into())
        }
    }
}
