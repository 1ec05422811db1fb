//! The shards that a poker holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::follow::Reading;
use super::life::{FormerHolders, RECORDS_ARE_KEPT};
use super::worker::Poker;
use crate::error::{Invalid, Result};
use crate::id::{Holder, SensorKind};
use crate::sensor::plan::Rules;
use crate::sensor::{
    Claim, Comeback, Left, Lending, OutageRow, PokerRow, Scope, Scopes, ShardLease, ShardTake, ShardWrite,
};
use crate::store::Tx;
use crate::time::Timestamp;

/// How long expired workers stay visible in the store.
const WORKERS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The most workers that one renewal deletes.
const WORKERS_FORGOTTEN: usize = 100;

/// The shards that a worker took, fully or for some kinds. Each has the instant since which no worker has served it,
/// or `None` if no worker ever did.
pub(super) type Gained = BTreeMap<u32, Option<Timestamp>>;

/// Serializes pokers with this name that renew or leave. Each of them decides by which one wrote last.
pub(super) fn take_turns(tx: &mut Tx<'_>, name: &Holder) -> Result<()> {
    tx.raw().serialize(&[&format!("stationmaster poker {name}")])?;
    Ok(())
}

/// What a worker remembers of its last renewal.
#[derive(Default)]
pub(super) struct Renewal {
    /// When the next one is due.
    pub(super) next_at: Option<Timestamp>,
    /// Until when another poker with its name counts as alive, if it was refused because of that.
    pub(super) name_taken_until: Option<Timestamp>,
    /// Until when the worker counts as alive, and holds its shards. A refusal does not change that.
    pub(super) alive_until: Option<Timestamp>,
    comeback: Option<Comeback>,
    /// The free shards that it left to other workers.
    left: Left,
    /// How many shards no worker held.
    pub(super) unclaimed: u32,
}

/// What a worker holds after a renewal.
struct Holding {
    renewal: Renewal,
    shards: Scopes,
    gained: Gained,
    /// The outages that were recorded.
    outages: Vec<OutageRow>,
    /// Ongoing outages in the shards gained.
    found: Vec<OutageRow>,
    /// Who held the gained shards before this worker, as far as known.
    former: FormerHolders,
}

impl Poker {
    /// Renews its heartbeat and its shards when that is due, and forgets the sensors of shards that it lost. Also takes
    /// the instant of the tick before. Returns how many shards it gained.
    pub(super) fn hold_shards(&mut self, now: Timestamp, last_tick: Option<Timestamp>) -> Result<usize> {
        if self.renewal.alive_until.is_some_and(|until| until <= now) && !self.plan.held().is_empty() {
            // Its leases have ended. Other workers may hold the shards now, whether or not the store accepts
            // the renewal.
            self.hold(Scopes::new());
        } else if self.renewal.name_taken_until.is_none() && self.renewal.next_at.is_some_and(|at| now < at) {
            // A worker whose name is taken asks each time, because its predecessor may have left.
            return Ok(0);
        }
        let holding = match self.renew(now, last_tick)? {
            Ok(holding) => holding,
            Err(until) => {
                self.hold(Scopes::new());
                // The other values stay: a refused renewal brought no worker back.
                let last = &mut self.renewal;
                (last.next_at, last.name_taken_until, last.unclaimed) = (Some(until), Some(until), 0);
                return Ok(0);
            }
        };
        self.renewal = holding.renewal;
        self.plan.outages_stored(&holding.outages);
        self.counted.stored(now);
        self.hold(holding.shards);
        self.plan.learn_outages(&holding.found);
        self.former_holders.extend(holding.former);
        let gained = holding.gained.len();
        for (shard, left_at) in holding.gained {
            let before = self.unread.get(&shard).and_then(|reading| reading.left_at);
            self.unread.insert(shard, Reading::gained(before.or(left_at)));
        }
        Ok(gained)
    }

    /// Records its heartbeat, and which shards it holds. If another poker with this name counts as alive,
    /// returns `Err` with the instant until which it does.
    fn renew(
        &self,
        now: Timestamp,
        last_tick: Option<Timestamp>,
    ) -> Result<std::result::Result<Holding, Timestamp>> {
        let (name, rules) = (&self.name, self.plan.rules);
        let Rules { codes, shards, lease: ttl, .. } = rules;
        let me = PokerRow::new(name.clone(), codes, shards, now + ttl);
        let me = me.incarnation(self.incarnation).kinds(self.kinds.served().cloned().collect());
        let me = me.most_shards(self.options.most_shards);
        let comeback = self.renewal.comeback.filter(|comeback| comeback.goes_on(now, ttl));
        let comeback = comeback.or_else(|| Comeback::of(self.renewal.alive_until, now, ttl));
        let mut loads = self.plan.loads(now, |kind| self.kinds.serves(kind));
        loads.retain(|shard, _| !self.unread.contains_key(shard));
        let claim = Claim { me: &me, now, ttl, comeback, loads: &loads, left: &self.renewal.left };
        self.store.write(|tx| {
            take_turns(tx, &self.name)?;
            let mut live = tx.raw().live_workers(now)?;
            agree(name, rules, &live)?;
            tx.raw().forget_workers(now - WORKERS_ARE_KEPT, WORKERS_FORGOTTEN)?;
            if let Some(until) = me.twin(&live) {
                return Ok(Err(until));
            }
            tx.raw().put_worker(&me)?;
            live.retain(|worker| worker.name != me.name);
            live.push(me.clone());
            live.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            let (loans, leases): (Vec<_>, Vec<_>) =
                tx.raw().shard_leases()?.into_iter().partition(|lease| lease.kind.is_some());
            let (mut writes, left) = claim.writes(&leases, &live);
            self.date_releases(&mut writes, last_tick.unwrap_or(now));
            let written = tx.raw().put_shards_if_unchanged(&writes)?;
            let mut writes = those_written(writes, &written);
            let mine = writes.iter().filter(|write| write.lease.is_of(name));
            let mine: BTreeSet<u32> = mine.map(|write| write.lease.shard).collect();
            let lending =
                Lending { me: &me, now, ttl, live: &live, leases: &leases, loans: &loans, held: &mine };
            let (held, lent) = lend(tx, lending)?;
            writes.extend(lent);
            let gained = self.gained(&held, &leases, now);
            let outages = self.store_outages(tx, &writes, now)?;
            self.counted.store(tx, (name, self.incarnation), now)?;
            let (found, former) = self.take_over(tx, &me, now, &writes, &held, &gained)?;
            let others = |lease: &&ShardLease| !lease.is_of(name) && !lease.is_free(now);
            // Shards of a dead worker are claimed the instant its lease ends.
            let freed = leases.iter().chain(&loans).filter(others).map(|lease| lease.expires_at);
            let next_at = Some(freed.fold(now + ttl / 3, Timestamp::min));
            let of_others = leases.iter().filter(others).filter(|lease| lease.shard < shards.get()).count();
            let claimed = u32::try_from(of_others + mine.len()).unwrap_or(u32::MAX);
            let unclaimed = shards.get().saturating_sub(claimed);
            let (name_taken_until, alive_until) = (None, Some(now + ttl));
            let renewal = Renewal { next_at, name_taken_until, alive_until, comeback, left, unclaimed };
            Ok(Ok(Holding { renewal, shards: held, gained, outages, found, former }))
        })
    }

    /// Stores in each shard that is released since when no worker has served it, for the worker that takes it next:
    /// since this worker's last tick or, if it has not read the shard, since before it took it.
    pub(super) fn date_releases(&self, writes: &mut [ShardWrite], last_tick: Timestamp) {
        for ShardWrite { lease, .. } in writes.iter_mut().filter(|write| write.lease.holder.is_none()) {
            let left_at = self.unread.get(&lease.shard).and_then(|reading| reading.left_at);
            lease.expires_at = left_at.unwrap_or(lease.expires_at.min(last_tick));
        }
    }

    /// Returns the shards in which this worker should poke sensors that it does not have in memory.
    fn gained(&self, held: &Scopes, leases: &[ShardLease], now: Timestamp) -> Gained {
        let mut gained = Gained::new();
        for (shard, scope) in held {
            let before = self.plan.held().get(shard);
            if before.is_some_and(|before| !scope.exceeds(before)) {
                continue;
            }
            let left_at = match (before, scope) {
                (None | Some(Scope::Only(_)), Scope::Except(_)) => {
                    let lease = leases.iter().find(|lease| lease.shard == *shard);
                    // A shard without a lease was never held, unless the codes were divided differently
                    // before.
                    lease
                        .map(|lease| lease.left_at(now, self.plan.rules.lease))
                        .or((!leases.is_empty()).then_some(now))
                }
                // A kind that was lent or returned changed hands after the last renewal.
                _ => Some(
                    self.renewal.alive_until.map_or(now, |until| (until - self.plan.rules.lease).min(now)),
                ),
            };
            gained.insert(*shard, left_at);
        }
        gained
    }

    /// Holds exactly these shards, and forgets the sensors of the others.
    fn hold(&mut self, shards: Scopes) {
        self.plan.hold(shards);
        self.unread.retain(|shard, _| self.plan.held().contains_key(shard));
        self.withdraw();
    }
}

/// Returns the writes that took effect.
fn those_written(writes: Vec<ShardWrite>, written: &[bool]) -> Vec<ShardWrite> {
    writes.into_iter().zip(written).filter(|(_, written)| **written).map(|(write, _)| write).collect()
}

/// Lends kinds, and takes back kinds that were lent. Returns what the worker now pokes, and the writes that
/// took effect.
fn lend(tx: &mut Tx<'_>, lending: Lending<'_>) -> Result<(Scopes, Vec<ShardWrite>)> {
    let mut writes = lending.writes();
    if writes.is_empty() {
        return Ok((lending.scopes(&[], &[]), writes));
    }
    let (me, now) = (&lending.me.name, lending.now);
    let is_lent = |write: &ShardWrite| write.lease.holder.as_ref().is_some_and(|holder| holder != me);
    if writes.iter().any(is_lent) {
        // A loan's epoch follows the previous one of its kind and shard, so that no two loans have the same.
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
        let left_at = left.map_or(now, |lease| lease.left_at(now, lending.ttl));
        Some(ShardTake::new(&write.lease, to, now).left_at(left_at))
    });
    let takes: Vec<ShardTake> = takes.collect();
    if !takes.is_empty() {
        tx.raw().put_shard_takes(&takes, now - RECORDS_ARE_KEPT)?;
    }
    Ok((scopes, writes))
}

/// Refuses to share sensors with a worker that divides them differently.
fn agree(me: &Holder, rules: Rules, live: &[PokerRow]) -> Result<()> {
    let same = |worker: &&PokerRow| worker.codes == rules.codes && worker.shards == rules.shards;
    match live.iter().find(|worker| worker.name != *me && !same(worker)) {
        None => Ok(()),
        Some(PokerRow { name, codes, shards, .. }) => {
            let (codes, shards) = (codes.get(), shards.get());
            Err(Invalid::Shards { other: name.clone(), codes, shards }.into())
        }
    }
}
