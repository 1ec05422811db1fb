//! Pools and limits, and their counters.

use std::collections::{BTreeSet, HashMap};

use super::state::{Filing, Write, replace_named};
use super::undo::Transaction;
use crate::admission::limits::{LimitRecord, LimitSpec, Rate, RateUse};
use crate::admission::{Lane, LaneKey, Pair, ShareUse, Subject, Undefined, WaitingCap};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{DEFAULT_POOL_SLOTS, PoolRecord, PoolSpec, PoolStats, Slots};
use crate::store::contract::{LeasesByLane, PoolTx};
use crate::task::TaskState;
use crate::time::Timestamp;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Pools {
    pub(super) rows: HashMap<PoolName, Box<PoolRecord>>,
}

/// The pools of a new store: only the default pool.
impl Default for Pools {
    fn default() -> Self {
        let name = PoolName::default_pool();
        let slots = Slots::Limited(DEFAULT_POOL_SLOTS);
        let spec =
            PoolSpec { name: name.clone(), slots, description: String::new(), sensing_keeps_slots: false };
        Self { rows: HashMap::from([(name, Box::new(PoolRecord::new(spec, 0)))]) }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LimitRow {
    /// False if the key is not defined and tasks only carry it.
    pub(super) is_defined: bool,
    pub(super) max: Option<u32>,
    pub(super) rate: Option<Rate>,
    pub(super) weight: Option<u32>,
    pub(super) used: i64,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Limits {
    rows: HashMap<LimitKey, LimitRow>,
    /// The defined keys. There may be many more that tasks only carry.
    defined: BTreeSet<LimitKey>,
    /// The number of lanes that name a key, for keys that are named.
    lanes: HashMap<LimitKey, u64>,
}

impl Limits {
    pub(super) fn swap(&mut self, key: &LimitKey, row: Option<LimitRow>) -> Option<LimitRow> {
        if row.is_some_and(|row| row.is_defined) {
            self.defined.insert(key.clone());
        } else {
            self.defined.remove(key);
        }
        replace_named(&mut self.rows, key, row)
    }

    /// Returns every known key, in any order, with the number of lanes that name it.
    pub(super) fn all(&self) -> impl Iterator<Item = (&LimitKey, &LimitRow, u64)> {
        self.rows.iter().map(|(key, row)| (key, row, self.lanes.get(key).copied().unwrap_or(0)))
    }

    pub(super) fn count_lane(&mut self, lane: &LaneKey, filing: Filing) {
        for key in &lane.limits {
            match filing {
                Filing::In => *self.lanes.entry(key.clone()).or_default() += 1,
                Filing::Out => {
                    if let Some(lanes) = self.lanes.get_mut(key) {
                        *lanes -= 1;
                        if *lanes == 0 {
                            self.lanes.remove(key);
                        }
                    }
                }
            }
        }
    }

    /// Returns true for a known key that is not defined, that no lane names and that nothing counts against.
    fn is_unused(&self, key: &LimitKey) -> bool {
        self.rows.get(key) == Some(&LimitRow::default()) && !self.lanes.contains_key(key)
    }

    pub(super) fn row(&self, key: &LimitKey) -> Option<LimitRow> {
        self.rows.get(key).copied()
    }

    pub(super) fn record(&self, key: &LimitKey) -> Option<LimitRecord> {
        let row = self.rows.get(key)?;
        let spec =
            LimitSpec { max: row.max, rate: row.rate, weight: row.weight, ..LimitSpec::of(key.clone()) };
        Some(LimitRecord::defined(key.clone(), Some(spec).filter(|_| row.is_defined), row.used))
    }
}

/// The slots of one pool, by what their tasks are doing.
#[derive(Default)]
struct Sums {
    running: i64,
    queued: i64,
    scheduled: i64,
    sensing: i64,
}

impl Transaction<'_> {
    /// Creates a row without a definition for a limit key that has no row.
    pub(super) fn make_limit_known(&mut self, key: &LimitKey) {
        if !self.state.limits.rows.contains_key(key) {
            self.write(Write::Limit(key.clone(), Some(Box::default())));
        }
    }

    pub(super) fn forget_limit_if_unused(&mut self, key: &LimitKey) {
        if self.state.limits.is_unused(key) {
            self.write(Write::Limit(key.clone(), None));
        }
    }

    /// Sums slots by pool. Reads leases, sensing tasks and lanes.
    fn slot_sums(&self) -> HashMap<&PoolName, Sums> {
        let mut sums: HashMap<&PoolName, Sums> = HashMap::new();
        for task in self.state.tasks.leased_and_sensing() {
            for (pool, slots) in task.lane.pools() {
                let sums = sums.entry(pool).or_default();
                let sum = match task.state {
                    TaskState::Running => &mut sums.running,
                    TaskState::Queued => &mut sums.queued,
                    _ => &mut sums.sensing,
                };
                *sum = sum.saturating_add(slots.into());
            }
        }
        for (_, lane, ready) in self.state.lanes.ready() {
            let ready = i64::try_from(ready).unwrap_or(i64::MAX);
            for (pool, slots) in lane.pools() {
                let sum = &mut sums.entry(pool).or_default().scheduled;
                *sum = sum.saturating_add(i64::from(slots).saturating_mul(ready));
            }
        }
        sums
    }
}

/// The reads of a tick.
impl Transaction<'_> {
    /// Returns the pools that these lanes name, by name.
    pub(super) fn pools_of(&self, lanes: &[Lane]) -> Vec<PoolRecord> {
        let names: BTreeSet<&PoolName> =
            lanes.iter().flat_map(|lane| lane.key.pools()).map(|(pool, _)| pool).collect();
        let pools = &self.state.pools.rows;
        names.into_iter().filter_map(|name| pools.get(name).map(|pool| (**pool).clone())).collect()
    }

    /// Returns the limits that these lanes carry, by key.
    pub(super) fn limits_of(&self, lanes: &[Lane]) -> Vec<LimitRecord> {
        let keys: BTreeSet<&LimitKey> = lanes.iter().flat_map(|lane| &lane.key.limits).collect();
        keys.into_iter().filter_map(|key| self.state.limits.record(key)).collect()
    }
}

impl PoolTx for Transaction<'_> {
    fn lock_definitions(&mut self) -> StoreResult<()> {
        self.writable()
    }

    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()> {
        self.writable()?;
        for spec in pools {
            let used = self.state.pools.rows.get(&spec.name).map_or(0, |pool| pool.used);
            let pool = PoolRecord::new(spec.clone(), used);
            self.write(Write::Pool(spec.name.clone(), Some(Box::new(pool))));
        }
        Ok(())
    }

    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<Undefined>> {
        self.writable()?;
        let delete = |name: &PoolName| match self.state.pools.rows.get(name).map(|pool| pool.used) {
            None => Undefined::NotDefined,
            Some(_) if name.as_str() == PoolName::DEFAULT => Undefined::IsDefault,
            Some(used) if used > 0 => Undefined::InUse(used),
            Some(_) => {
                self.write(Write::Pool(name.clone(), None));
                Undefined::Removed
            }
        };
        Ok(pools.iter().map(delete).collect())
    }

    fn pools(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolRecord>>> {
        Ok(names.iter().map(|name| self.state.pools.rows.get(name).map(|pool| (**pool).clone())).collect())
    }

    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>> {
        let mut pools: Vec<&PoolRecord> = self.state.pools.rows.values().map(|pool| &**pool).collect();
        pools.sort_unstable_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(pools.into_iter().cloned().collect())
    }

    fn pool_stats(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolStats>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let (sums, none) = (self.slot_sums(), Sums::default());
        let stats = |name: &PoolName| {
            let pool = self.state.pools.rows.get(name)?;
            let sums = sums.get(name).unwrap_or(&none);
            Some(PoolStats::new(pool, sums.running, sums.queued, sums.scheduled, sums.sensing))
        };
        Ok(names.iter().map(stats).collect())
    }

    fn put_limits(&mut self, limits: &[LimitSpec]) -> StoreResult<()> {
        self.writable()?;
        for spec in limits {
            if spec.is_family {
                self.write(Write::Family(spec.key.clone(), Some(Box::new(spec.clone()))));
                continue;
            }
            let used = self.state.limits.rows.get(&spec.key).map_or(0, |row| row.used);
            let row =
                LimitRow { is_defined: true, max: spec.max, rate: spec.rate, weight: spec.weight, used };
            self.write(Write::Limit(spec.key.clone(), Some(Box::new(row))));
        }
        Ok(())
    }

    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let delete = |key: &LimitKey| match self.state.limits.rows.get(key).copied() {
            Some(LimitRow { is_defined: true, used, .. }) => {
                self.write(Write::Limit(
                    key.clone(),
                    Some(Box::new(LimitRow { used, ..LimitRow::default() })),
                ));
                self.forget_limit_if_unused(key);
                true
            }
            _ => false,
        };
        Ok(keys.iter().map(delete).collect())
    }

    fn delete_families(&mut self, prefixes: &[LimitKey]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let delete = |prefix: &LimitKey| {
            let was = self.state.rules.families.contains_key(prefix);
            self.write(Write::Family(prefix.clone(), None));
            was
        };
        Ok(prefixes.iter().map(delete).collect())
    }

    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>> {
        Ok(keys.iter().map(|key| self.state.limits.record(key)).collect())
    }

    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>> {
        let limits = &self.state.limits;
        Ok(limits.defined.iter().filter_map(|key| limits.record(key)).collect())
    }

    fn families(&mut self) -> StoreResult<Vec<LimitSpec>> {
        Ok(self.state.rules.families.values().cloned().collect())
    }

    fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let mut had = Vec::with_capacity(caps.len());
        for (subject, cap) in caps {
            had.push(self.state.rules.caps.contains_key(subject));
            self.write(Write::Cap(subject.clone(), *cap));
        }
        Ok(had)
    }

    fn caps(&mut self) -> StoreResult<Vec<(Subject, WaitingCap)>> {
        Ok(self.state.rules.caps.iter().map(|(subject, cap)| (subject.clone(), *cap)).collect())
    }

    fn rates(&mut self, keys: &[LimitKey]) -> StoreResult<(Vec<RateUse>, Option<Timestamp>)> {
        let rules = &self.state.rules;
        Ok((keys.iter().filter_map(|key| rules.rate(key).cloned()).collect(), rules.clock()))
    }

    fn shares(&mut self, pairs: &[Pair]) -> StoreResult<(Vec<ShareUse>, i64)> {
        Ok((self.known_shares(&pairs.iter().cloned().collect()), self.state.last.grants))
    }

    fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let put = |subject: &Subject| {
            let was = self.state.rules.paused.contains(subject);
            self.write(Write::Pause(subject.clone(), paused));
            was != paused
        };
        Ok(subjects.iter().map(put).collect())
    }

    fn paused(&mut self) -> StoreResult<Vec<Subject>> {
        Ok(self.state.rules.paused.iter().cloned().collect())
    }

    fn leases(&mut self) -> StoreResult<(Vec<Subject>, LeasesByLane)> {
        Ok((self.paused()?, self.leases_by_lane()))
    }
}

#[cfg(test)]
impl Limits {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        self.rows.iter().map(|(key, row)| Write::Limit(key.clone(), Some(Box::new(*row))))
    }
}
