//! Which shards a poker holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::life::Shared;
use super::options::Options;
use super::worker::Poker;
use crate::error::{Invalid, Result};
use crate::id::Holder;
use crate::sensor::{Claim, Comeback, ShardLease, ShardWrite, Worker};
use crate::shard::range;
use crate::store::Tx;
use crate::time::Timestamp;

/// How long expired workers stay visible in the store.
const WORKERS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The most workers that one renewal forgets.
const WORKERS_FORGOTTEN: usize = 100;

/// Shards that a worker took, each with the instant since which no one has looked after it.
pub(super) type Gained = BTreeMap<u32, Timestamp>;

/// Waits for other pokers of this name that renew or leave: each decides by which of them was there last.
pub(super) fn take_turns(tx: &mut Tx<'_>, name: &Holder) -> Result<()> {
    tx.raw().serialize(&[&format!("stationmaster poker {name}")])?;
    Ok(())
}

/// How a renewal ended.
enum Renewed {
    /// Another poker with this name counts as alive until then.
    NameTaken(Timestamp),
    Holding(Holding),
}

/// What a worker holds after a renewal.
struct Holding {
    shards: Gained,
    /// When the next lease of another worker ends.
    freed: Option<Timestamp>,
    unclaimed: u32,
    shared: Shared,
}

impl Poker {
    /// Renews its heartbeat and its shards when it is time to, and forgets the sensors of shards it lost.
    /// Returns the shards whose sensors are not in memory yet, each with the instant since which no one has
    /// looked after it.
    pub(super) fn hold_shards(&mut self, now: Timestamp) -> Result<Gained> {
        if self.plan.expire(now, self.rules()) {
            // Others may hold them now, whether or not the store accepts the renewal.
            self.withdraw();
        } else if self.name_taken_until.is_none() && self.renew_at.is_some_and(|at| now < at) {
            // A worker whose name is taken asks each time, because its predecessor may have left.
            return Ok(Gained::new());
        }
        let lease = self.options.lease;
        let comeback = self.comeback.filter(|comeback| comeback.goes_on(now, lease));
        let comeback = comeback.or_else(|| Comeback::of(self.alive_until, now, lease));
        let Holding { shards: held, freed, unclaimed, shared } = match self.renew(now, comeback)? {
            Renewed::NameTaken(until) => {
                self.hold(BTreeMap::new());
                (self.name_taken_until, self.renew_at, self.unclaimed) = (Some(until), Some(until), 0);
                return Ok(Gained::new());
            }
            Renewed::Holding(holding) => holding,
        };
        // Counted from the renewal that the store accepted. A refused one brought no worker back.
        self.comeback = comeback;
        let expires_at = now + lease;
        (self.name_taken_until, self.alive_until, self.unclaimed) = (None, Some(expires_at), unclaimed);
        let until = held.keys().map(|shard| (*shard, expires_at)).collect();
        let gained = held.into_iter().filter(|(shard, _)| !self.plan.held().contains_key(shard)).collect();
        self.told(&shared);
        self.hold(until);
        self.found(shared);
        // Shards of a dead worker are claimed the instant its lease ends.
        let renew_at = now + lease / 3;
        self.renew_at = Some(freed.map_or(renew_at, |at| at.min(renew_at)));
        Ok(gained)
    }

    /// Records its heartbeat, and which shards it holds.
    fn renew(&self, now: Timestamp, comeback: Option<Comeback>) -> Result<Renewed> {
        let (name, options) = (&self.name, &self.options);
        let expires_at = now + options.lease;
        let me = Worker::new(name.clone(), options.shard_codes, options.shards, expires_at);
        let me = me.incarnation(self.incarnation);
        let (shards, most) = (options.shards.get(), options.most_shards.get());
        let claim = Claim { me: name, now, ttl: options.lease, shards, most, comeback };
        self.store.write(|tx| {
            take_turns(tx, &self.name)?;
            let mut live = tx.raw().live_workers(now)?;
            agree(name, options, &live)?;
            tx.raw().forget_workers(now - WORKERS_ARE_KEPT, WORKERS_FORGOTTEN)?;
            if let Some(until) = me.twin(&live) {
                return Ok(Renewed::NameTaken(until));
            }
            tx.raw().put_worker(&me)?;
            live.retain(|worker| worker.name != me.name);
            live.push(me.clone());
            live.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            let leases = tx.raw().shard_leases()?;
            let writes = claim.writes(&leases, &live);
            let written = tx.raw().put_shards_if_unchanged(&writes)?;
            let writes: Vec<ShardWrite> = writes
                .into_iter()
                .zip(written)
                .filter(|(_, written)| *written)
                .map(|(write, _)| write)
                .collect();
            let mine = writes.iter().filter(|write| write.lease.holder.as_ref() == Some(name));
            let since = |shard: u32| {
                let lease = leases.iter().find(|lease| lease.shard == shard);
                lease.map_or(now, |lease| left_alone_since(lease, options.lease, now))
            };
            let mine: Gained = mine.map(|write| (write.lease.shard, since(write.lease.shard))).collect();
            let alone = |lease: &&ShardLease| {
                mine.contains_key(&lease.shard) && !is_handed_on(lease, options.lease, now)
            };
            let alone: Gained =
                leases.iter().filter(alone).map(|lease| (lease.shard, lease.expires_at.min(now))).collect();
            let shared = self.share(tx, &me, now, &writes, &mine, &alone)?;
            let others =
                leases.iter().filter(|lease| lease.holder.as_ref() != Some(name) && !lease.is_free(now));
            let freed = others.clone().map(|lease| lease.expires_at).min();
            let held = others.filter(|lease| lease.shard < shards).count() + mine.len();
            let unclaimed = shards.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX));
            Ok(Renewed::Holding(Holding { shards: mine, freed, unclaimed, shared }))
        })
    }

    /// Holds these shards only, and forgets the sensors of the others.
    pub(super) fn hold(&mut self, shards: BTreeMap<u32, Timestamp>) {
        self.plan.hold(shards, self.rules());
        self.withdraw();
    }

    pub(super) fn ranges(&self, shards: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
        shards.map(|shard| range(self.options.shard_codes, self.options.shards, shard)).collect()
    }
}

/// Returns since when no one has looked after a shard that is taken now: since it was released, or since the
/// lease of its dead holder ended. A shard may have been left alone for longer than workers need to hand it
/// on. It then counts as looked after until now, so that after a pause of all workers not everything is poked
/// at once.
fn left_alone_since(lease: &ShardLease, length: Duration, now: Timestamp) -> Timestamp {
    if is_handed_on(lease, length, now) { lease.expires_at.min(now) } else { now }
}

/// Returns true if a shard was left alone for no longer than workers need to hand it on.
fn is_handed_on(lease: &ShardLease, length: Duration, now: Timestamp) -> bool {
    now.saturating_duration_since(lease.expires_at) <= length / 2
}

/// Refuses to share sensors with a worker that splits them otherwise.
fn agree(me: &Holder, options: &Options, live: &[Worker]) -> Result<()> {
    let same = |worker: &&Worker| worker.codes == options.shard_codes && worker.shards == options.shards;
    match live.iter().find(|worker| worker.name != *me && !same(worker)) {
        None => Ok(()),
        Some(Worker { name, codes, shards, .. }) => {
            let (codes, shards) = (codes.get(), shards.get());
            Err(Invalid::Shards { other: name.clone(), codes, shards }.into())
        }
    }
}
