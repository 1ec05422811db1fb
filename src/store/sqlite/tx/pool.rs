//! The store's operations on pools and limits.

use std::collections::HashMap;

use rusqlite::{CachedStatement, OptionalExtension};

use super::super::error::Outcome;
use super::codes::Code;
use super::lane::DELETE_LIMIT;
use super::rules::rule_columns;
use super::{Db, SqliteBackend};
use crate::admission::limits::{LimitRecord, LimitSpec, RateUse};
use crate::admission::{ShareUse, Subject, Undefined, WaitingCap};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::store::contract::{LeasesByLane, PoolTx};
use crate::store::sql::records::{limit, pool};
use crate::time::Timestamp;

const PUT_POOL: &str = "INSERT INTO sm_pool (name, slots, keeps_slots, description) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (name) DO UPDATE \
     SET slots = excluded.slots, keeps_slots = excluded.keeps_slots, description = excluded.description";
pub(super) const DELETE_POOL: &str = "DELETE FROM sm_pool WHERE name = ?1 AND used = 0";
pub(super) const POOL: &str =
    "SELECT name, slots, used, keeps_slots, description FROM sm_pool WHERE name = ?1";
pub(super) const ALL_POOLS: &str =
    "SELECT name, slots, used, keeps_slots, description FROM sm_pool ORDER BY name";
pub(super) const LEASED_SLOTS: &str = "SELECT lane, state, held_slots FROM sm_task INDEXED BY sm_task_lease \
     WHERE expires_at IS NOT NULL AND state IN (1, 2)";
pub(super) const SENSING_SLOTS: &str = "SELECT lane, count(*) FROM sm_task INDEXED BY sm_task_sensing \
     WHERE state = 4 GROUP BY lane";
const PUT_LIMIT: &str = "INSERT INTO sm_task_limit (key, defined, max, starts, period, burst, weight) \
     VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (key) DO UPDATE \
     SET defined = 1, max = excluded.max, starts = excluded.starts, period = excluded.period, burst = excluded.burst, weight = excluded.weight";
pub(super) const UNDEFINE_LIMIT: &str = "UPDATE sm_task_limit SET defined = 0, max = NULL, starts = NULL, period = NULL, burst = NULL, weight = NULL \
     WHERE key = ?1 AND defined = 1";
pub(super) const LIMIT: &str =
    "SELECT key, max, used, defined, starts, period, burst, weight FROM sm_task_limit WHERE key = ?1";
pub(super) const DEFINED_LIMITS: &str = "SELECT key, max, used, defined, starts, period, burst, weight \
     FROM sm_task_limit INDEXED BY sm_task_limit_defined WHERE defined = 1 ORDER BY key";

/// Slots of one pool, by what its tasks are doing.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    running: i64,
    queued: i64,
    scheduled: i64,
    sensing: i64,
}

impl Db<'_> {
    fn delete_pool(&self, delete: &mut CachedStatement<'_>, name: &PoolName) -> Outcome<Undefined> {
        if name.as_str() == PoolName::DEFAULT {
            return Ok(match self.pools(std::slice::from_ref(name))?.pop().flatten() {
                Some(_) => Undefined::IsDefault,
                None => Undefined::NotDefined,
            });
        }
        if delete.execute([name.as_str()])? > 0 {
            return Ok(Undefined::Removed);
        }
        let mut statement = self.prepare(POOL)?;
        let used = statement.query_row([name.as_str()], |row| row.get(2)).optional()?;
        Ok(used.map_or(Undefined::NotDefined, Undefined::InUse))
    }

    pub(super) fn pools<'k>(
        &self,
        names: impl IntoIterator<Item = &'k PoolName>,
    ) -> Outcome<Vec<Option<PoolRecord>>> {
        let mut statement = self.prepare(POOL)?;
        let mut pool = |name: &PoolName| statement.query([name.as_str()])?.next()?.map(pool).transpose();
        names.into_iter().map(&mut pool).collect()
    }

    pub(super) fn all_pools(&self) -> Outcome<Vec<PoolRecord>> {
        self.prepare(ALL_POOLS)?.query_and_then([], |row| pool(row))?.collect()
    }

    pub(super) fn limits<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k LimitKey>,
    ) -> Outcome<Vec<Option<LimitRecord>>> {
        let mut statement = self.prepare(LIMIT)?;
        let mut limit = |key: &LimitKey| statement.query([key.as_str()])?.next()?.map(limit).transpose();
        keys.into_iter().map(&mut limit).collect()
    }

    fn pool_stats(&mut self, names: &[PoolName]) -> Outcome<Vec<Option<PoolStats>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let sums = self.slot_sums()?;
        let stats = |pool: PoolRecord| {
            let sums = sums.get(&pool.spec.name).copied().unwrap_or_default();
            PoolStats::new(&pool, sums.running, sums.queued, sums.scheduled, sums.sensing)
        };
        Ok(self.pools(names)?.into_iter().map(|pool| pool.map(stats)).collect())
    }

    fn slot_sums(&mut self) -> Outcome<HashMap<PoolName, Sums>> {
        let mut sums: HashMap<PoolName, Sums> = HashMap::new();
        for lane in self.ready_lanes(None)? {
            let ready = i64::try_from(lane.ready).unwrap_or(i64::MAX);
            for (pool, slots) in lane.key.pools() {
                let sum = &mut sums.entry(pool.clone()).or_default().scheduled;
                *sum = sum.saturating_add(i64::from(slots).saturating_mul(ready));
            }
        }
        let mut statement = self.prepare(LEASED_SLOTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (lane, is_queued) = (self.lane(row.get(0)?)?, row.get::<_, i64>(1)? == 1);
            for (pool, slots) in lane.held(row.get(2)?) {
                let sums = sums.entry(pool.clone()).or_default();
                let sum = if is_queued { &mut sums.queued } else { &mut sums.running };
                *sum = sum.saturating_add(slots);
            }
        }
        let mut statement = self.prepare(SENSING_SLOTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let lane = self.lane(row.get(0)?)?;
            let tasks: i64 = row.get(1)?;
            for (pool, slots) in lane.pools() {
                let sum = &mut sums.entry(pool.clone()).or_default().sensing;
                *sum = sum.saturating_add(tasks.saturating_mul(slots.into()));
            }
        }
        Ok(sums)
    }
}

impl PoolTx for SqliteBackend<'_> {
    fn lock_definitions(&mut self) -> StoreResult<()> {
        // Takes the writer lock first. Otherwise a transaction that reads here and then writes must start over if
        // another transaction wrote in between.
        self.write(|_| Ok(()))
    }

    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()> {
        self.write(|db| {
            let mut statement = db.prepare(PUT_POOL)?;
            for pool in pools {
                let name = pool.name.as_str();
                statement.execute((
                    name,
                    pool.slots.total(),
                    pool.sensing_keeps_slots.code(),
                    &pool.description,
                ))?;
            }
            Ok(())
        })
    }

    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<Undefined>> {
        self.write(|db| {
            let mut delete = db.prepare(DELETE_POOL)?;
            pools.iter().map(|name| db.delete_pool(&mut delete, name)).collect()
        })
    }

    fn pools(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolRecord>>> {
        self.read(|db| db.pools(names))
    }

    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>> {
        self.read(|db| db.all_pools())
    }

    fn pool_stats(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolStats>>> {
        self.read(|db| db.pool_stats(names))
    }

    fn put_limits(&mut self, limits: &[LimitSpec]) -> StoreResult<()> {
        self.write(|db| {
            let mut statement = db.prepare(PUT_LIMIT)?;
            for limit in limits {
                if limit.is_family {
                    db.put_family(limit)?;
                    continue;
                }
                let (max, starts, period, burst, weight) = rule_columns(limit);
                statement.execute((limit.key.as_str(), max, starts, period, burst, weight))?;
            }
            Ok(())
        })
    }

    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<bool>> {
        self.write(|db| {
            let (mut undefine, mut delete) = (db.prepare(UNDEFINE_LIMIT)?, db.prepare(DELETE_LIMIT)?);
            let mut undefined = |key: &LimitKey| {
                let was_defined = undefine.execute([key.as_str()])? > 0;
                delete.execute([key.as_str()])?;
                Ok(was_defined)
            };
            keys.iter().map(&mut undefined).collect()
        })
    }

    fn delete_families(&mut self, prefixes: &[LimitKey]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.delete_families(prefixes))
    }

    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>> {
        self.read(|db| db.limits(keys))
    }

    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>> {
        self.read(|db| db.prepare(DEFINED_LIMITS)?.query_and_then([], |row| limit(row))?.collect())
    }

    fn families(&mut self) -> StoreResult<Vec<LimitSpec>> {
        self.read(Db::families)
    }

    fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.put_caps(caps))
    }

    fn caps(&mut self) -> StoreResult<Vec<(Subject, WaitingCap)>> {
        self.read(Db::caps)
    }

    fn rates(&mut self, keys: &[LimitKey]) -> StoreResult<(Vec<RateUse>, Option<Timestamp>)> {
        self.read(|db| db.rates(keys))
    }

    fn shares(&mut self, pairs: &[(PoolName, LimitKey)]) -> StoreResult<(Vec<ShareUse>, i64)> {
        self.read(|db| db.shares(pairs.iter().map(|(pool, share)| (pool, share))))
    }

    fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> StoreResult<Vec<bool>> {
        self.write(|db| db.put_paused(subjects, paused))
    }

    fn paused(&mut self) -> StoreResult<Vec<Subject>> {
        self.read(Db::paused)
    }

    fn leases(&mut self) -> StoreResult<(Vec<Subject>, LeasesByLane)> {
        self.read(|db| Ok((db.paused()?, db.leases_by_lane()?)))
    }
}
