//! Which shards a poker holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::kinds::Kinds;
use super::life::{Changed, RECORDS_ARE_KEPT, Shared};
use super::options::Options;
use super::worker::Poker;
use crate::error::{Invalid, Result};
use crate::id::{Holder, SensorKind};
use crate::sensor::plan::Share;
use crate::sensor::{
    Claim, Comeback, Left, Lending, Loads, PokerRow, Scope, ShardLease, ShardTake, ShardWrite,
};
use crate::shard::range;
use crate::store::Tx;
use crate::time::Timestamp;

/// How long expired workers stay visible in the store.
const WORKERS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The most workers that one renewal forgets.
const WORKERS_FORGOTTEN: usize = 100;

/// Shards that a worker took, or kinds of them.
pub(super) type Gained = BTreeMap<u32, Gain>;

/// What a worker took of one shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gain {
    /// Since when no one has looked after it, as far as due times are concerned: see [`left_alone_since`].
    pub(super) since: Timestamp,
    /// Since when no one has.
    pub(super) left_at: Timestamp,
    /// Whether the worker looked after other kinds of it before, whose sensors it has in memory.
    pub(super) has_others: bool,
}

/// Instants by shard.
pub(super) type Since = BTreeMap<u32, Timestamp>;

/// The kinds that a worker looks after, by shard.
pub(super) type Scopes = BTreeMap<u32, Scope<SensorKind>>;

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
    shards: Scopes,
    gained: Gained,
    /// When the next lease of another worker ends.
    freed: Option<Timestamp>,
    unclaimed: u32,
    left: Left,
    shared: Shared,
}

impl Poker {
    /// Renews its heartbeat and its shards when it is time to, and forgets the sensors of shards it lost.
    /// Returns the shards of which not all sensors are in memory yet.
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
        let Holding { shards, gained, freed, unclaimed, left, shared } = match self.renew(now, comeback)? {
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
        self.left = left;
        self.told(&shared);
        let share = |kinds: &mut Kinds, scope: Scope<SensorKind>| Share {
            until: expires_at,
            scope: scope.map(|kind| kinds.number(kind)),
        };
        let held = shards.into_iter().map(|(shard, scope)| (shard, share(&mut self.kinds, scope))).collect();
        self.hold(held);
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
        let me = PokerRow::new(name.clone(), options.shard_codes, options.shards, expires_at);
        let me = me.incarnation(self.incarnation).kinds(self.kinds.served_names());
        let me = PokerRow { most_shards: options.most_shards, ..me };
        let loads = match self.is_unread {
            true => &Loads::new(),
            false => &self.plan.loads(now, self.rules(), |kind| self.kinds.serves(kind)),
        };
        let shards = options.shards.get();
        let claim = Claim { me: &me, now, ttl: options.lease, comeback, loads, left: &self.left };
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
            let (loans, leases): (Vec<_>, Vec<_>) =
                tx.raw().shard_leases()?.into_iter().partition(|lease| lease.kind.is_some());
            let (writes, left) = claim.writes(&leases, &live);
            let written = tx.raw().put_shards_if_unchanged(&writes)?;
            let mut writes = those_written(writes, &written);
            let mine = writes.iter().filter(|write| write.lease.holder.as_ref() == Some(name));
            let mine: BTreeSet<u32> = mine.map(|write| write.lease.shard).collect();
            let lending = Lending {
                me: &me,
                now,
                ttl: options.lease,
                live: &live,
                leases: &leases,
                loans: &loans,
                held: &mine,
            };
            let (held, lent) = lend(tx, lending)?;
            writes.extend(lent);
            let gained = self.gained(&held, &leases, now);
            let alone = |lease: &&ShardLease| {
                mine.contains(&lease.shard)
                    && gained.contains_key(&lease.shard)
                    && !is_handed_on(lease, options.lease, now)
            };
            let alone: Since =
                leases.iter().filter(alone).map(|lease| (lease.shard, lease.expires_at.min(now))).collect();
            let changed = Changed { writes: &writes, held: &held, gained: &gained, left_alone: &alone };
            let shared = self.share(tx, &me, now, changed)?;
            let others = |lease: &&ShardLease| lease.holder.as_ref() != Some(name) && !lease.is_free(now);
            let freed = leases.iter().chain(&loans).filter(others).map(|lease| lease.expires_at).min();
            let of_others = leases.iter().filter(others).filter(|lease| lease.shard < shards).count();
            let claimed = u32::try_from(of_others + mine.len()).unwrap_or(u32::MAX);
            let unclaimed = shards.saturating_sub(claimed);
            Ok(Renewed::Holding(Holding { shards: held, gained, freed, unclaimed, left, shared }))
        })
    }

    /// Returns the shards of which this worker looks after more than it does in memory.
    fn gained(&self, held: &Scopes, leases: &[ShardLease], now: Timestamp) -> Gained {
        let mut gained = Gained::new();
        for (shard, scope) in held {
            let before = self.plan.held().get(shard);
            if before.is_some_and(|before| {
                !scope.map(|kind| self.kinds.known(kind)).exceeds(&before.scope.map(|kind| Some(*kind)))
            }) {
                continue;
            }
            let lease = leases.iter().find(|lease| lease.shard == *shard);
            let (since, left_at) = match (before, scope) {
                (None, Scope::Except(_)) => lease.map_or((now, now), |lease| {
                    (left_alone_since(lease, self.options.lease, now), lease.expires_at.min(now))
                }),
                // A kind that was lent or given back changed hands after the last renewal.
                _ => {
                    let renewed = self.alive_until.map_or(now, |until| (until - self.options.lease).min(now));
                    (renewed, renewed)
                }
            };
            gained.insert(*shard, Gain { since, left_at, has_others: before.is_some() });
        }
        gained
    }

    /// Looks after these shards only, and forgets the sensors of the others.
    pub(super) fn hold(&mut self, shards: BTreeMap<u32, Share>) {
        self.plan.hold(shards, self.rules());
        self.withdraw();
    }

    pub(super) fn ranges(&self, shards: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
        shards.map(|shard| range(self.options.shard_codes, self.options.shards, shard)).collect()
    }
}

/// Returns the writes that took effect.
fn those_written(writes: Vec<ShardWrite>, written: &[bool]) -> Vec<ShardWrite> {
    writes.into_iter().zip(written).filter(|(_, written)| **written).map(|(write, _)| write).collect()
}

/// Lends kinds, and takes back what was lent. Returns what the worker looks after, and the writes that took effect.
fn lend(tx: &mut Tx<'_>, lending: Lending<'_>) -> Result<(Scopes, Vec<ShardWrite>)> {
    let mut writes = lending.writes();
    if writes.is_empty() {
        return Ok((lending.scopes(&[], &[]), writes));
    }
    let (me, now) = (&lending.me.name, lending.now);
    let is_lent = |write: &ShardWrite| write.lease.holder.as_ref().is_some_and(|holder| holder != me);
    if writes.iter().any(is_lent) {
        // The epochs of a loan go on where the last one of its kind and shard ended, so that no two loans have one.
        let takes = tx.raw().shard_takes()?;
        let last: BTreeMap<(u32, Option<&SensorKind>), i64> =
            takes.iter().map(|take| ((take.shard, take.kind.as_ref()), take.epoch)).collect();
        for write in writes.iter_mut().filter(|write| is_lent(write)) {
            let lease = &mut write.lease;
            let last = last.get(&(lease.shard, lease.kind.as_ref())).copied().unwrap_or(0);
            lease.epoch = lease.epoch.max(last + 1);
        }
    }
    let written = tx.raw().put_shards_if_unchanged(&writes)?;
    let scopes = lending.scopes(&writes, &written);
    let writes = those_written(writes, &written);
    let takes = writes.iter().filter(|write| is_lent(write)).filter_map(|write| {
        let to = lending.live.iter().find(|worker| Some(&worker.name) == write.lease.holder.as_ref())?;
        let kind = |loan: &&ShardLease| (loan.shard, &loan.kind) == (write.lease.shard, &write.lease.kind);
        let shard = |lease: &&ShardLease| lease.shard == write.lease.shard && lease.is_free(now);
        // It was lent before, or its shard was taken just now.
        let left = lending.loans.iter().find(kind).or_else(|| lending.leases.iter().find(shard));
        let left_at = left.map_or(now, |lease| lease.expires_at.min(now));
        Some(ShardTake::new(&write.lease, to, now).left_at(left_at))
    });
    let takes: Vec<ShardTake> = takes.collect();
    if !takes.is_empty() {
        tx.raw().put_shard_takes(&takes, now - RECORDS_ARE_KEPT)?;
    }
    Ok((scopes, writes))
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
    // Who should have it may not come, and another one takes it within two thirds.
    now.saturating_duration_since(lease.expires_at) <= length * 3 / 4
}

/// Refuses to share sensors with a worker that splits them otherwise.
fn agree(me: &Holder, options: &Options, live: &[PokerRow]) -> Result<()> {
    let same = |worker: &&PokerRow| worker.codes == options.shard_codes && worker.shards == options.shards;
    match live.iter().find(|worker| worker.name != *me && !same(worker)) {
        None => Ok(()),
        Some(PokerRow { name, codes, shards, .. }) => {
            let (codes, shards) = (codes.get(), shards.get());
            Err(Invalid::Shards { other: name.clone(), codes, shards }.into())
        }
    }
}
