//! What a poker tells the store of its sensors besides how they end: who took their shards, and outages.
//!
//! All of it is written with the renewal of its shards, which fences it: a worker that lost a shard says nothing
//! of it any more. No line is written per sensor, and none per poke.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::poke::PokeLog;
use super::shards::{Gained, Scopes, Since};
use super::worker::Poker;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, SensorKind};
use crate::lease::LeaseRef;
use crate::sensor::plan::Event;
use crate::sensor::{
    Ending, OutageRow, PokerRow, Scope, SensorRecord, SensorState, ShardLease, ShardTake, ShardWrite, life,
};
use crate::shard::{self, code, range};
use crate::store::Tx;
use crate::time::Timestamp;

/// How long outages that ended are remembered, and who took kinds that are not lent any more.
pub(super) const RECORDS_ARE_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Passes what an answer means for a sensor to a log.
pub(super) fn tell(log: &dyn PokeLog, sensor: &SensorRecord, now: Timestamp, event: Event<'_>) {
    match event {
        Event::Poked(poked) => log.poked(sensor, now, poked),
        Event::OutageBegan => log.noted(sensor, now, life::OUTAGE_BEGAN),
        Event::OutageEnded(since) => log.noted(sensor, now, &life::outage_ended(since, now)),
    }
}

/// The most outages that one renewal tells of, so that it ends long before the lease. The next one tells of more.
const OUTAGES_AT_ONCE: usize = 10_000;

/// What a renewal found and wrote of this.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Outages that go on in the shards gained.
    found: Vec<OutageRow>,
    /// What the store was told.
    told: Vec<OutageRow>,
    /// Who held the shards gained before this worker, as far as it is remembered.
    former: FormerHolders,
}

/// What a renewal changed.
#[derive(Clone, Copy)]
pub(super) struct Changed<'a> {
    /// The renewals, loans and releases that took effect.
    pub(super) writes: &'a [ShardWrite],
    pub(super) held: &'a Scopes,
    pub(super) gained: &'a Gained,
    /// The shards that no one has looked after for longer than a takeover takes, with the instant since which.
    pub(super) left_alone: &'a Since,
}

/// Who held a shard, or a kind of it, before this worker.
pub(super) type FormerHolders = BTreeMap<(u32, Option<SensorKind>), Holder>;

impl Poker {
    /// Passes what happened to a sensor to the log. A faulty log must not delay the sensors.
    pub(super) fn note(&self, sensor: &SensorRecord, at: Timestamp, what: &str) -> usize {
        let Some(log) = self.log.as_deref() else { return 0 };
        usize::from(catch_unwind(AssertUnwindSafe(|| log.noted(sensor, at, what))).is_err())
    }

    /// Notes that a sensor came, that its shard was taken over, or that something else ended it. Called before the
    /// plan learns of it. Sensors that are read again, because the worker may have missed an end, came before.
    pub(super) fn note_arrival(
        &mut self,
        sensor: &SensorRecord,
        kind: u32,
        is_new: bool,
        gained: &Gained,
        now: Timestamp,
    ) {
        let is_known = self.plan.knows(sensor.lease_ref());
        if is_known == (sensor.state == SensorState::Waiting) {
            return;
        }
        let (codes, shards) = (self.options.shard_codes, self.options.shards);
        let code = code(sensor.fingerprint, codes);
        let gained = gained.iter().find(|(shard, _)| range(codes, shards, **shard).contains(&code));
        let mut lines = Vec::new();
        if is_known {
            lines.push((now, life::ENDED_ELSEWHERE.to_owned()));
        } else if sensor.state == SensorState::Waiting && (is_new || gained.is_some()) {
            let of =
                |shard: &u32, kind: Option<&SensorKind>| self.former_holders.get(&(*shard, kind.cloned()));
            // One that registered after the former worker was gone was no one's.
            let former = gained
                .filter(|(_, gain)| !is_new && sensor.registered_at < gain.left_at)
                .and_then(|(shard, _)| of(shard, Some(&sensor.kind)).or_else(|| of(shard, None)));
            lines.push(match former {
                Some(_) => (now, life::taken(&self.name, former)),
                None => (sensor.registered_at, life::registered(sensor)),
            });
            let others = former.is_none().then(|| self.plan.sharing(sensor, kind));
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

    /// Tells the store which shards this worker took, and of outages in the shards that it held. Reads what is
    /// known of those that it gained.
    pub(super) fn share(
        &self,
        tx: &mut Tx<'_>,
        me: &PokerRow,
        now: Timestamp,
        changed: Changed<'_>,
    ) -> Result<Shared> {
        let Changed { writes, gained, left_alone, .. } = changed;
        let (codes, shards) = (self.options.shard_codes, self.options.shards);
        let held = self.plan.held();
        let mut told = self.plan.outages_to_store(now, self.rules());
        if !told.is_empty() {
            let written =
                writes.iter().map(|write| write.lease.shard).filter(|shard| held.contains_key(shard));
            keep_those_of(&mut told, codes, shards, written);
            // First those of shards that it releases: it forgets them.
            if told.len() > OUTAGES_AT_ONCE {
                let mut first = told.clone();
                let released = writes.iter().map(|write| &write.lease).filter(|lease| lease.holder.is_none());
                keep_those_of(&mut first, codes, shards, released.map(|lease| lease.shard));
                let first: BTreeSet<OutageRow> = first.into_iter().collect();
                told.sort_by_key(|row| !first.contains(row));
                told.truncate(first.len().max(OUTAGES_AT_ONCE));
            }
        }
        if !told.is_empty() {
            tx.raw().put_outages(&told, now - RECORDS_ARE_KEPT)?;
        }
        if gained.is_empty() {
            return Ok(Shared { told, ..Shared::default() });
        }
        let mut found = tx.raw().outages(None)?;
        keep_those_of(&mut found, codes, shards, gained.keys().copied());
        end_unwatched(tx, &mut found, (codes, shards), left_alone, now - RECORDS_ARE_KEPT)?;
        let (takes, former) = self.takes(tx, me, now, changed)?;
        if !takes.is_empty() {
            tx.raw().put_shard_takes(&takes, now - RECORDS_ARE_KEPT)?;
        }
        Ok(Shared { found, told, former })
    }

    /// Returns what to remember of the shards that this worker took, and who held them before.
    fn takes(
        &self,
        tx: &mut Tx<'_>,
        me: &PokerRow,
        now: Timestamp,
        changed: Changed<'_>,
    ) -> Result<(Vec<ShardTake>, FormerHolders)> {
        let Changed { writes, held: mine, gained, .. } = changed;
        let (mut last, mut former) = (BTreeMap::new(), FormerHolders::new());
        let renewed = self.alive_until.map_or(Timestamp::MAX, |until| until - self.options.lease);
        for take in tx.raw().shard_takes()?.into_iter().filter(|take| gained.contains_key(&take.shard)) {
            let of = (take.shard, take.kind.clone());
            // What it was lent since its last renewal, the lender has noted.
            if take.kind.is_none() || take.holder != me.name || take.at <= renewed {
                former.insert(of.clone(), take.holder.clone());
            }
            last.insert(of, take);
        }
        let left_at = |shard: &u32| gained.get(shard).map_or(now, |gain| gain.left_at);
        // Not those that it holds already in the store, and lost from memory alone.
        let is_mine = |write: &&ShardWrite| write.lease.holder.as_ref() == Some(&me.name);
        let taken = writes.iter().filter(is_mine).filter(|write| write.was != write.lease.epoch);
        let take =
            |write: &ShardWrite| ShardTake::new(&write.lease, me, now).left_at(left_at(&write.lease.shard));
        let mut takes: Vec<ShardTake> = taken.map(take).collect();
        // Kinds that were lent once, and are this worker's with their shard. Once it has noted that, it says so no more.
        for ((shard, kind), take) in last.into_iter().filter(|(_, take)| take.holder != me.name) {
            let scope = mine.get(&shard).filter(|scope| matches!(scope, Scope::Except(_)));
            if kind.is_some_and(|kind| scope.is_some_and(|scope| scope.has(&kind))) {
                let (epoch, holder) = (take.epoch + 1, me.name.clone());
                takes.push(ShardTake { epoch, holder, at: now, left_at: left_at(&shard), ..take });
            }
        }
        Ok((takes, former))
    }

    /// Goes on with what the renewal, which the store has accepted, wrote.
    pub(super) fn told(&mut self, shared: &Shared) {
        self.plan.outages_stored(&shared.told);
    }

    /// Goes on with what the renewal found, once the plan holds the shards gained.
    pub(super) fn found(&mut self, shared: Shared) {
        self.plan.learn_outages(&shared.found);
        self.former_holders = shared.former;
    }

    /// Returns what the store is to be told of outages before the shards are released.
    pub(super) fn outages_at_last(&self) -> AtLast {
        let now = self.plan.now().unwrap_or(Timestamp::MAX);
        let (codes, shards) = (self.options.shard_codes, self.options.shards);
        AtLast { now, codes, shards, rows: self.plan.outages_to_store(now, self.rules()) }
    }
}

/// What a worker that leaves tells the store.
pub(super) struct AtLast {
    now: Timestamp,
    codes: NonZeroU32,
    shards: NonZeroU32,
    rows: Vec<OutageRow>,
}

impl AtLast {
    /// Tells the store of those in shards that are still this worker's, and since when no one looks after these.
    pub(super) fn tell(&self, tx: &mut Tx<'_>, name: &Holder) -> Result<()> {
        let leases = tx.raw().shard_leases()?;
        let mine = leases.iter().filter(|lease| lease.holder.as_ref() == Some(name));
        let mut rows = self.rows.clone();
        keep_those_of(&mut rows, self.codes, self.shards, mine.clone().map(|lease| lease.shard));
        for rows in rows.chunks(OUTAGES_AT_ONCE) {
            tx.raw().put_outages(rows, self.now - RECORDS_ARE_KEPT)?;
        }
        let left: Vec<ShardWrite> = mine
            .filter(|lease| lease.kind.is_none() && self.now < lease.expires_at)
            .map(|lease| {
                let left = ShardLease {
                    holder: None,
                    epoch: lease.epoch + 1,
                    expires_at: self.now,
                    ..lease.clone()
                };
                ShardWrite::replacing(lease, left)
            })
            .collect();
        if !left.is_empty() {
            tx.raw().put_shards_if_unchanged(&left)?;
        }
        Ok(())
    }
}

/// Ends the outages of targets at which no one has looked for long: whether they went on meanwhile is not known, and the
/// first failed look must not fail sensors at once that have waited since before.
fn end_unwatched(
    tx: &mut Tx<'_>,
    found: &mut Vec<OutageRow>,
    (codes, shards): (NonZeroU32, NonZeroU32),
    left_alone: &Since,
    forget: Timestamp,
) -> Result<()> {
    let mut ended = Vec::new();
    for row in found.iter().filter(|row| row.until.is_none()) {
        let shard = shard::of(code(row.fingerprint, codes), codes, shards);
        let since = left_alone.get(&shard);
        ended.extend(since.map(|since| OutageRow { until: Some((*since).max(row.since)), ..*row }));
    }
    let over: BTreeSet<Fingerprint> = ended.iter().map(|row| row.fingerprint).collect();
    found.retain(|row| !over.contains(&row.fingerprint));
    if !ended.is_empty() {
        tx.raw().put_outages(&ended, forget)?;
    }
    Ok(())
}

/// Keeps the outages of targets in these shards.
fn keep_those_of(
    rows: &mut Vec<OutageRow>,
    codes: NonZeroU32,
    shards: NonZeroU32,
    of: impl Iterator<Item = u32>,
) {
    let mut ranges: Vec<_> =
        of.filter(|shard| *shard < shards.get()).map(|shard| range(codes, shards, shard)).collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    rows.retain(|row| {
        let code = code(row.fingerprint, codes);
        let behind = ranges.partition_point(|range| range.start <= code);
        behind.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| range.contains(&code))
    });
}
