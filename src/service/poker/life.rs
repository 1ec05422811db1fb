//! Records a poker's data about its sensors, except their ends: who took their shards, and outages.
//!
//! All of it is written together with the renewal of its shards, which fences it: a worker that lost a shard
//! records nothing more about it. Nothing is written per sensor or per poke.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::shards::Gained;
use super::worker::Poker;
use crate::error::Result;
use crate::id::{Holder, SensorKind};
use crate::lease::LeaseRef;
use crate::sensor::{
    Ending, OutageRow, PokerRow, Scope, Scopes, SensorRecord, SensorState, ShardTake, ShardWrite, life,
};
use crate::store::Tx;
use crate::time::Timestamp;

/// How long outages are kept after they ended, and takes of kinds that are no longer lent.
pub(super) const RECORDS_ARE_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Calls the host's log. Returns how often it panicked. A faulty log must not delay the sensors.
pub(super) fn panics(call: impl FnOnce()) -> usize {
    usize::from(catch_unwind(AssertUnwindSafe(call)).is_err())
}

/// The most outages that one renewal records, so that it ends long before the lease. The next one records more.
const OUTAGES_AT_ONCE: usize = 10_000;

/// Who held a shard, or a kind of it, before this worker.
pub(super) type FormerHolders = BTreeMap<(u32, Option<SensorKind>), Holder>;

impl Poker {
    /// Reports an event of a sensor to the log. Returns how often the log panicked.
    pub(super) fn note(&self, sensor: &SensorRecord, at: Timestamp, what: &str) -> usize {
        self.log.as_deref().map_or(0, |log| panics(|| log.noted(sensor, at, what)))
    }

    /// Reports that a sensor registered, that its shard was taken over, or that something else ended it. Must
    /// be called before the plan learns of it.
    pub(super) fn note_arrival(
        &mut self,
        sensor: &SensorRecord,
        (shard, left_at): (u32, Option<Timestamp>),
        now: Timestamp,
    ) {
        let is_known = self.plan.knows(sensor.lease_ref());
        if is_known == (sensor.state == SensorState::Waiting) {
            return;
        }
        let mut lines = Vec::new();
        if is_known {
            lines.push((now, life::ENDED_ELSEWHERE.to_owned()));
        } else {
            let of = |kind: Option<&SensorKind>| self.former_holders.get(&(shard, kind.cloned()));
            // A sensor that registered after the former worker had gone had no worker.
            let former = left_at.filter(|left_at| sensor.registered_at < now.min(*left_at));
            let former = former.and_then(|_| of(Some(&sensor.kind)).or_else(|| of(None)));
            lines.push(match former {
                Some(_) => (now, life::taken(&self.name, former)),
                None => (sensor.registered_at, life::registered(sensor)),
            });
            let others = former.is_none().then(|| self.plan.sharing(sensor));
            lines.push((now, life::poked_by(&self.name, others)));
        }
        for (at, line) in lines {
            self.log_panics += self.note(sensor, at, &line);
        }
    }

    /// Notes an end that the store has recorded.
    pub(super) fn note_end(&mut self, lease: LeaseRef, ending: &Ending, now: Timestamp) {
        let panics = self.plan.whole(lease).map(|sensor| self.note(sensor, now, &life::ended(ending)));
        self.log_panics += panics.unwrap_or(0);
    }

    /// Returns the outages to record in these shards. In unread ones, the worker does not know whether a sensor still
    /// waits for a target.
    fn outages_to_store(&self, shards: &BTreeSet<u32>, now: Timestamp) -> Vec<OutageRow> {
        let mut rows = self.plan.outages_to_store(now);
        let shard = |row: &OutageRow| self.plan.rules.shard(row.fingerprint);
        rows.retain(|row| shards.contains(&shard(row)) && !self.unread.contains_key(&shard(row)));
        rows
    }

    /// Records the outages in the shards of these writes, all of which took effect.
    pub(super) fn store_outages(
        &self,
        tx: &mut Tx<'_>,
        writes: &[ShardWrite],
        now: Timestamp,
    ) -> Result<Vec<OutageRow>> {
        let (rules, leases) = (self.plan.rules, || writes.iter().map(|write| &write.lease));
        let written: BTreeSet<u32> = leases().map(|lease| lease.shard).collect();
        let free = leases().filter(|lease| lease.holder.is_none());
        let released: BTreeSet<u32> = free.map(|lease| lease.shard).collect();
        let mut rows = self.outages_to_store(&written, now);
        if rows.len() > OUTAGES_AT_ONCE {
            // Outages in shards that it releases come first, because it forgets them.
            let is_released = |row: &OutageRow| released.contains(&rules.shard(row.fingerprint));
            rows.sort_by_key(|row| !is_released(row));
            rows.truncate(rows.partition_point(is_released).max(OUTAGES_AT_ONCE));
        }
        if !rows.is_empty() {
            tx.raw().put_outages(&rows, now - RECORDS_ARE_KEPT)?;
        }
        Ok(rows)
    }

    /// Records which shards this worker took, given the writes that took effect. Returns what is known about those
    /// that it gained: the ongoing outages, and who held them before.
    pub(super) fn take_over(
        &self,
        tx: &mut Tx<'_>,
        me: &PokerRow,
        now: Timestamp,
        writes: &[ShardWrite],
        held: &Scopes,
        gained: &Gained,
    ) -> Result<(Vec<OutageRow>, FormerHolders)> {
        if gained.is_empty() {
            return Ok(Default::default());
        }
        let mut found = tx.raw().outages(None)?;
        found.retain(|row| gained.contains_key(&self.plan.rules.shard(row.fingerprint)));
        let (mut last, mut former) = (BTreeMap::new(), FormerHolders::new());
        let renewed = self.renewal.alive_until.map_or(Timestamp::MAX, |until| until - self.plan.rules.lease);
        for take in tx.raw().shard_takes()?.into_iter().filter(|take| gained.contains_key(&take.shard)) {
            let of = (take.shard, take.kind.clone());
            // The lender has recorded what it lent to this worker since the last renewal.
            if take.kind.is_none() || take.holder != me.name || take.at <= renewed {
                former.insert(of.clone(), take.holder.clone());
            }
            last.insert(of, take);
        }
        let left_at = |shard: &u32| gained.get(shard).copied().flatten().unwrap_or(now);
        // Excludes shards that the store already lists as its own: it lost them only from memory.
        let taken =
            writes.iter().filter(|write| write.lease.is_of(&me.name) && write.was != write.lease.epoch);
        let take =
            |write: &ShardWrite| ShardTake::new(&write.lease, me, now).left_at(left_at(&write.lease.shard));
        let mut takes: Vec<ShardTake> = taken.map(take).collect();
        // Kinds that were once lent, and now belong to this worker together with their shard. Each is
        // recorded only once.
        for ((shard, kind), take) in last.into_iter().filter(|(_, take)| take.holder != me.name) {
            let scope = held.get(&shard).filter(|scope| matches!(scope, Scope::Except(_)));
            if kind.is_some_and(|kind| scope.is_some_and(|scope| scope.has(&kind))) {
                let (epoch, holder) = (take.epoch + 1, me.name.clone());
                takes.push(ShardTake { epoch, holder, at: now, left_at: left_at(&shard), ..take });
            }
        }
        if !takes.is_empty() {
            tx.raw().put_shard_takes(&takes, now - RECORDS_ARE_KEPT)?;
        }
        Ok((found, former))
    }

    /// Releases the shards as of the last tick, and records outages in those that are still this worker's.
    pub(super) fn release(&self, tx: &mut Tx<'_>) -> Result<()> {
        let now = self.plan.now().unwrap_or(Timestamp::MAX);
        let mut mine = tx.raw().shard_leases()?;
        mine.retain(|lease| lease.is_of(&self.name));
        let shards: BTreeSet<u32> = mine.iter().map(|lease| lease.shard).collect();
        for rows in self.outages_to_store(&shards, now).chunks(OUTAGES_AT_ONCE) {
            tx.raw().put_outages(rows, now - RECORDS_ARE_KEPT)?;
        }
        mine.retain(|lease| lease.kind.is_none() && now < lease.expires_at);
        let mut left: Vec<ShardWrite> = mine.iter().map(|lease| lease.released(now)).collect();
        self.date_releases(&mut left, now);
        if !left.is_empty() {
            tx.raw().put_shards_if_unchanged(&left)?;
        }
        Ok(())
    }
}
