//! The store's operations on pools and limits.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

use super::super::error::Outcome;
use super::super::news::News;
use super::super::text::escape;
use super::super::wire::ask;
use super::rules::rule_columns;
use super::{Db, PostgresBackend, row};
use crate::admission::limits::{LimitRecord, LimitSpec, RateUse};
use crate::admission::{ShareUse, Subject, Undefined, WaitingCap};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::store::contract::{LeasesByLane, PoolTx};
use crate::store::sql::codes::Code;
pub(super) use crate::store::sql::records::{limit, pool};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

const PUT_POOLS: &str = statement!("put_pools.sql");
pub(super) const DELETE_POOLS: &str = statement!("delete_pools.sql");
pub(super) const POOLS: &str = statement!("pools.sql");
pub(super) const ALL_POOLS: &str = statement!("all_pools.sql");
pub(super) const POOL_STATS: &str = statement!("pool_stats.sql");
const PUT_LIMITS: &str = statement!("put_limits.sql");
pub(super) const DELETE_LIMITS: &str = statement!("delete_limits.sql");
pub(super) const LIMITS: &str = statement!("limits.sql");
pub(super) const ALL_LIMITS: &str = statement!("all_limits.sql");

fn texts<T: AsRef<str>>(names: &[T]) -> Vec<String> {
    names.iter().map(|name| name.as_ref().to_owned()).collect()
}

/// Returns the last item of each name: if a name is given twice, the later definition replaces the earlier
/// one.
fn last_of_each<T>(given: &[T], name: impl Fn(&T) -> &str) -> Vec<&T> {
    let mut last: HashMap<&str, usize> = HashMap::with_capacity(given.len());
    for (at, item) in given.iter().enumerate() {
        last.insert(name(item), at);
    }
    given
        .iter()
        .enumerate()
        .filter(|(at, item)| last.get(name(item)) == Some(at))
        .map(|(_, item)| item)
        .collect()
}

impl Db<'_> {
    fn put_pools(&mut self, pools: &[PoolSpec]) -> Outcome<()> {
        let pools = last_of_each(pools, |pool| pool.name.as_str());
        let names: Vec<String> = pools.iter().map(|pool| pool.name.as_str().to_owned()).collect();
        let slots: Vec<Option<i64>> = pools.iter().map(|pool| pool.slots.total().map(i64::from)).collect();
        let sensing: Vec<i64> = pools.iter().map(|pool| pool.sensing_keeps_slots.code()).collect();
        let descriptions: Vec<String> =
            pools.iter().map(|pool| escape(&pool.description).into_owned()).collect();
        self.define(ask!(PUT_POOLS, names, slots, sensing, descriptions), true).map(|_| ())
    }

    fn delete_pools(&mut self, names: &[PoolName]) -> Outcome<Vec<Undefined>> {
        let mut answers = vec![Undefined::NotDefined; names.len()];
        let mut deleted = HashSet::new();
        for row in self.define(ask!(DELETE_POOLS, texts(names)), true)? {
            let (at, used) = (row::place(&row, 0)?, row::value(&row, 1)?);
            let (Some(name), Some(answer)) = (names.get(at), answers.get_mut(at)) else { continue };
            *answer = match used {
                _ if name.as_str() == PoolName::DEFAULT => Undefined::IsDefault,
                0 if deleted.insert(name) => Undefined::Removed,
                0 => Undefined::NotDefined,
                used => Undefined::InUse(used),
            };
        }
        Ok(answers)
    }

    fn placed<T: Clone>(
        rows: &[Row],
        len: usize,
        at: usize,
        read: impl Fn(&Row) -> Outcome<T>,
    ) -> Outcome<Vec<Option<T>>> {
        let mut found = vec![None; len];
        for row in rows {
            if let Some(found) = found.get_mut(row::place(row, at)?) {
                *found = Some(read(row)?);
            }
        }
        Ok(found)
    }

    fn pool_stats(&mut self, names: &[PoolName]) -> Outcome<Vec<Option<PoolStats>>> {
        Self::placed(&self.one(ask!(POOL_STATS, texts(names)))?, names.len(), 5, |row| {
            let slots = |at| row::value(row, at);
            Ok(PoolStats::new(&pool(row)?, slots(6)?, slots(7)?, slots(8)?, slots(9)?))
        })
    }

    fn put_limits(&mut self, limits: &[LimitSpec]) -> Outcome<()> {
        let (families, keys): (Vec<_>, Vec<_>) = limits.iter().partition(|spec| spec.is_family);
        let keys = last_of_each(&keys, |spec| spec.key.as_str());
        if !keys.is_empty() {
            let keys: Vec<&LimitSpec> = keys.into_iter().copied().collect();
            let (keys, [maxima, starts, periods, bursts, weights]) = rule_columns(&keys);
            self.define(ask!(PUT_LIMITS, keys, maxima, starts, periods, bursts, weights), true)?;
        }
        let families = last_of_each(&families, |spec| spec.key.as_str());
        if families.is_empty() {
            return Ok(());
        }
        self.put_families(&families.into_iter().copied().collect::<Vec<_>>())
    }

    /// Returns which ones existed. A key that is named twice is deleted once.
    fn delete_limits(&mut self, keys: &[LimitKey]) -> Outcome<Vec<bool>> {
        let rows = self.define(ask!(DELETE_LIMITS, texts(keys)), true)?;
        let mut gone: HashSet<String> = rows.iter().map(|row| row::value(row, 0)).collect::<Outcome<_>>()?;
        Ok(keys.iter().map(|key| gone.remove(key.as_str())).collect())
    }
}

impl PoolTx for PostgresBackend<'_> {
    fn lock_definitions(&mut self) -> StoreResult<()> {
        self.write(|db| db.lock_definitions())
    }

    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()> {
        self.announce(News::Capacity, |db| if pools.is_empty() { Ok(()) } else { db.put_pools(pools) })
    }

    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<Undefined>> {
        self.write(|db| if pools.is_empty() { Ok(Vec::new()) } else { db.delete_pools(pools) })
    }

    fn pools(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolRecord>>> {
        self.read(|db| {
            if names.is_empty() {
                return Ok(Vec::new());
            }
            Db::placed(&db.one(ask!(POOLS, texts(names)))?, names.len(), 5, pool)
        })
    }

    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>> {
        self.read(|db| db.one(ask!(ALL_POOLS))?.iter().map(pool).collect())
    }

    fn pool_stats(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolStats>>> {
        self.read(|db| if names.is_empty() { Ok(Vec::new()) } else { db.pool_stats(names) })
    }

    fn put_limits(&mut self, limits: &[LimitSpec]) -> StoreResult<()> {
        self.announce(News::Capacity, |db| if limits.is_empty() { Ok(()) } else { db.put_limits(limits) })
    }

    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<bool>> {
        let delete = |db: &mut Db<'_>| if keys.is_empty() { Ok(Vec::new()) } else { db.delete_limits(keys) };
        self.announce(News::Capacity, delete)
    }

    fn delete_families(&mut self, prefixes: &[LimitKey]) -> StoreResult<Vec<bool>> {
        self.announce(News::Capacity, |db| match prefixes {
            [] => Ok(Vec::new()),
            _ => db.delete_families(prefixes),
        })
    }

    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>> {
        self.read(|db| {
            if keys.is_empty() {
                return Ok(Vec::new());
            }
            Db::placed(&db.one(ask!(LIMITS, texts(keys)))?, keys.len(), 8, limit)
        })
    }

    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>> {
        self.read(|db| db.one(ask!(ALL_LIMITS))?.iter().map(limit).collect())
    }

    fn families(&mut self) -> StoreResult<Vec<LimitSpec>> {
        self.read(Db::families)
    }

    fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> StoreResult<Vec<bool>> {
        self.write(|db| if caps.is_empty() { Ok(Vec::new()) } else { db.put_caps(caps) })
    }

    fn caps(&mut self) -> StoreResult<Vec<(Subject, WaitingCap)>> {
        self.read(Db::caps)
    }

    fn rates(&mut self, keys: &[LimitKey]) -> StoreResult<(Vec<RateUse>, Option<Timestamp>)> {
        self.read(|db| db.rates(keys))
    }

    fn shares(&mut self, pairs: &[(PoolName, LimitKey)]) -> StoreResult<(Vec<ShareUse>, i64)> {
        self.read(|db| db.shares(pairs))
    }

    fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> StoreResult<Vec<bool>> {
        let put = |db: &mut Db<'_>| match subjects {
            [] => Ok(Vec::new()),
            _ => db.put_paused(subjects, paused),
        };
        // A pause may end a reservation that blocks other tasks.
        self.announce(News::Capacity, put)
    }

    fn paused(&mut self) -> StoreResult<Vec<Subject>> {
        self.read(Db::paused)
    }

    fn leases(&mut self) -> StoreResult<(Vec<Subject>, LeasesByLane)> {
        self.read(Db::leases)
    }
}
