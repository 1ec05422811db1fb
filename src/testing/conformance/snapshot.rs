//! Everything that can be seen of a store, in one value.

use crate::admission::limits::{LimitRecord, LimitSpec, RateUse};
use crate::admission::{Candidate, Lane, LaneId, LanePage, Subject, WaitingCap};
use crate::error::StoreResult;
use crate::feed::{Consumer, TaskEvent};
use crate::id::{LimitKey, RequestId, TaskKey};
use crate::lease::LeaseRef;
use crate::pool::{PoolRecord, PoolStats};
use crate::run::{ActiveQuery, RunRecord};
use crate::sensor::{PokeCounts, SensorRecord};
use crate::shard::DEFAULT_CODES;
use crate::store::Discrepancy;
use crate::store::ReadTx;
use crate::store::contract::{
    LeasesByLane, OutageRow, PokerRow, SensorQuery, ShardLease, ShardTake, StoreTx, SurveyQuery, WhichSensors,
};
use crate::task::{PastAttempt, TaskRecord};
use crate::time::Timestamp;

use super::steps::Steps;
use super::world::ends_of_time;

/// The names that a [`Snapshot`] looks for; it finds everything else on its own.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Tasks, and with them their sensors.
    pub tasks: Vec<TaskKey>,
    /// Limits, also those that only tasks made known.
    pub limits: Vec<LimitKey>,
    /// Ticks that granted something.
    pub requests: Vec<RequestId>,
}

/// Everything that can be seen of a store. Two are equal if no call could tell the states apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub(super) tasks: Vec<Option<TaskRecord>>,
    /// What is kept of the attempts of these tasks.
    pub(super) attempts: Vec<Vec<PastAttempt>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) candidates: Vec<Candidate>,
    pub(super) next: [Option<Timestamp>; 2],
    /// The pools and limits of the lanes.
    pub(super) named: Vec<PoolRecord>,
    pub(super) carried: Vec<LimitRecord>,
    pub(super) granted: Vec<Option<Vec<LeaseRef>>>,
    pub(super) pools: Vec<PoolRecord>,
    pub(super) stats: Vec<Option<PoolStats>>,
    pub(super) limits: Vec<Option<LimitRecord>>,
    pub(super) all_limits: Vec<LimitRecord>,
    pub(super) families: Vec<LimitSpec>,
    pub(super) paused: Vec<Subject>,
    pub(super) caps: Vec<(Subject, WaitingCap)>,
    pub(super) rates: (Vec<RateUse>, Option<Timestamp>),
    pub(super) leases: LeasesByLane,
    pub(super) sensors: Vec<Option<SensorRecord>>,
    pub(super) changed: Vec<SensorRecord>,
    pub(super) last_change: u64,
    pub(super) forgotten_change: u64,
    pub(super) feed: (Vec<TaskEvent>, u64),
    pub(super) consumers: Vec<Consumer>,
    pub(super) workers: Vec<PokerRow>,
    pub(super) shards: Vec<ShardLease>,
    pub(super) takes: Vec<ShardTake>,
    pub(super) outages: Vec<OutageRow>,
    pub(super) poke_counts: Vec<PokeCounts>,
    pub(super) runs: Vec<RunRecord>,
    pub(super) silent: Vec<RunRecord>,
    pub(super) audit: Vec<Discrepancy>,
}

/// Creates a query for all sensors from this change on.
pub(super) fn all_sensors(after: u64, which: WhichSensors, limit: usize) -> SensorQuery {
    let codes = DEFAULT_CODES;
    let all = crate::shard::range(codes, std::num::NonZeroU32::MIN, 0);
    SensorQuery::new(after, codes, vec![all], which, limit)
}

/// Returns all silent runs. Equally long silent ones come in any order.
pub(super) fn silent(tx: &mut dyn StoreTx, before: Timestamp) -> StoreResult<Vec<RunRecord>> {
    let mut silent = tx.silent_runs(before, usize::MAX)?;
    assert!(silent.windows(2).all(|pair| pair[0].heartbeat <= pair[1].heartbeat), "the longest silent first");
    silent.sort_by(|a, b| (a.heartbeat, &a.key).cmp(&(b.heartbeat, &b.key)));
    Ok(silent)
}

/// Returns what these keys owe to rates, by key.
fn sorted_rates(tx: &mut dyn StoreTx, keys: &[LimitKey]) -> StoreResult<(Vec<RateUse>, Option<Timestamp>)> {
    let (mut rates, clock) = tx.rates(keys)?;
    rates.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok((rates, clock))
}

/// Returns the lanes with leases, in order.
fn sorted_leases(tx: &mut dyn StoreTx) -> StoreResult<LeasesByLane> {
    let mut leases = tx.leases()?.1;
    leases.retain(|(_, leases)| *leases > 0);
    leases.sort_unstable();
    Ok(leases)
}

impl Snapshot {
    /// Returns what the audit found; a sound store has nothing here.
    pub fn audit(&self) -> &[Discrepancy] {
        &self.audit
    }

    /// Returns the tasks that were watched.
    pub fn tasks(&self) -> &[Option<TaskRecord>] {
        &self.tasks
    }

    /// Returns all pools.
    pub fn pools(&self) -> &[PoolRecord] {
        &self.pools
    }

    /// Counts the ids of tasks from 1 where a task that was never granted shows them; their order and distances stay.
    /// Counts lanes from 1, in order: a transaction that failed may have drawn a number for one.
    pub(in crate::testing) fn numbered_from_one(mut self) -> Self {
        let tasks = self.tasks.iter().flatten().map(|task| task.id.0).min().map_or(0, |first| first - 1);
        let lanes: Vec<LaneId> = self.lanes.iter().map(|lane| lane.id).collect();
        let number = |id: LaneId| LaneId(1 + lanes.iter().filter(|lane| **lane < id).count() as i64);
        self.tasks.iter_mut().flatten().for_each(|task| task.id.0 -= tasks);
        self.lanes.iter_mut().for_each(|lane| lane.id = number(lane.id));
        for candidate in &mut self.candidates {
            candidate.lane = number(candidate.lane);
            candidate.order.id.0 -= tasks;
        }
        self
    }

    /// Looks at everything in this transaction.
    ///
    /// # Errors
    ///
    /// What the store returns.
    ///
    /// # Panics
    ///
    /// If silent runs come in another order than the promised one.
    pub fn take(tx: &mut ReadTx<'_>, watch: &Watch) -> StoreResult<Self> {
        Self::of(tx.raw(), watch)
    }

    pub(crate) fn of(tx: &mut dyn StoreTx, watch: &Watch) -> StoreResult<Self> {
        let (first, last) = ends_of_time();
        let survey = tx.survey(&SurveyQuery::new())?;
        let lanes = survey.lanes;
        let page = |lane: &Lane| LanePage::new(lane.id, None, 10_000).with_ready_at(true);
        let pages: Vec<LanePage> = lanes.iter().map(page).collect();
        let pools = tx.all_pools()?;
        let names: Vec<_> = pools.iter().map(|pool| pool.spec.name.clone()).collect();
        Ok(Self {
            tasks: tx.tasks(&watch.tasks)?,
            attempts: attempts(tx, watch)?,
            lanes,
            candidates: tx.candidates(&pages)?,
            next: [survey.next_due, tx.next_expiry()?],
            named: survey.pools,
            carried: survey.limits,
            granted: watch.requests.iter().map(|request| tx.granted(request)).collect::<Result<_, _>>()?,
            pools,
            stats: tx.pool_stats(&names)?,
            limits: tx.limits(&watch.limits)?,
            all_limits: tx.all_limits()?,
            families: tx.families()?,
            paused: tx.paused()?,
            caps: tx.caps()?,
            rates: sorted_rates(tx, &watch.limits)?,
            leases: sorted_leases(tx)?,
            sensors: tx.sensors(&watch.tasks)?,
            changed: tx.changed_sensors(&all_sensors(0, WhichSensors::All, 10_000))?,
            last_change: tx.sensor_changes()?.last,
            forgotten_change: tx.sensor_changes()?.last_forgotten,
            feed: (tx.feed(0, 10_000)?, tx.feed_last()?),
            consumers: tx.consumers()?,
            workers: tx.live_workers(first)?,
            shards: tx.shard_leases()?,
            takes: tx.shard_takes()?,
            outages: tx.outages(None)?,
            poke_counts: tx.poke_counts(first..last)?,
            runs: tx.active_runs(&ActiveQuery::new(first, last))?,
            silent: silent(tx, last)?,
            audit: tx.audit()?,
        })
    }
}

fn attempts(tx: &mut dyn StoreTx, watch: &Watch) -> StoreResult<Vec<Vec<PastAttempt>>> {
    let ids: Vec<_> = tx.tasks(&watch.tasks)?.into_iter().flatten().map(|task| task.id).collect();
    tx.attempts(&ids)
}
