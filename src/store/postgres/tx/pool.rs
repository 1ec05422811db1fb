//! The store's operations on pools and limits.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

use super::super::error::Outcome;
use super::super::news::News;
use super::super::text::escape;
use super::super::wire::ask;
use super::{Db, PostgresBackend, row};
use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::store::contract::PoolTx;
use crate::store::sql::codes::Code;
pub(super) use crate::store::sql::records::{limit, pool};
use crate::store::{LimitDeletion, PoolDeletion};

const PUT_POOLS: &str = "INSERT INTO sm.pool AS pool (name, slots, keeps_slots, description) \
     SELECT name, slots, keeps_slots, description \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) given (name, slots, keeps_slots, description) \
     ON CONFLICT (name) DO UPDATE \
     SET slots = excluded.slots, keeps_slots = excluded.keeps_slots, description = excluded.description";
/// Returns what was there before.
pub(super) const DELETE_POOLS: &str = "WITH asked AS MATERIALIZED ( \
       SELECT place, pool.name, pool.used FROM unnest($1::text[]) WITH ORDINALITY given (name, place) \
       CROSS JOIN LATERAL (SELECT name, used FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool), \
     gone AS (DELETE FROM sm.pool USING asked \
       WHERE pool.name = asked.name AND asked.used = 0 AND asked.name <> 'default_pool') \
     SELECT place, used FROM asked";
pub(super) const POOLS: &str = "SELECT pool.name, slots, used, keeps_slots, description, place \
     FROM unnest($1::text[]) WITH ORDINALITY given (name, place) \
     CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool";
pub(super) const ALL_POOLS: &str =
    "SELECT name, slots, used, keeps_slots, description FROM sm.pool ORDER BY name";
/// By pool and by what its tasks do: 0 ready, 1 queued, 2 running, 4 sensing.
pub(super) const SLOT_SUMS: &str = "SELECT lane.pool, 0::bigint, \
       least(sum(lane.slots::numeric * lane.ready), 9223372036854775807)::bigint \
     FROM sm.lane WHERE ready > 0 GROUP BY lane.pool \
     UNION ALL SELECT lane.pool, held.state, least(sum(held.slots), 9223372036854775807)::bigint \
     FROM (SELECT lane, state, sum(held_slots) AS slots FROM sm.task \
           WHERE expires_at IS NOT NULL AND state IN (1, 2) GROUP BY lane, state) held \
     CROSS JOIN LATERAL (SELECT pool FROM sm.lane WHERE lane.no = held.lane OFFSET 0) lane \
     GROUP BY lane.pool, held.state \
     UNION ALL SELECT lane.pool, 4::bigint, least(sum(lane.slots * sensing.count), 9223372036854775807)::bigint \
     FROM (SELECT lane, count(*)::numeric AS count FROM sm.task WHERE state = 4 GROUP BY lane) sensing \
     CROSS JOIN LATERAL (SELECT pool, slots FROM sm.lane WHERE lane.no = sensing.lane OFFSET 0) lane \
     GROUP BY lane.pool";
const PUT_LIMITS: &str = "INSERT INTO sm.task_limit AS task_limit (key, max) \
     SELECT key, max FROM unnest($1::text[], $2::bigint[]) given (key, max) \
     ON CONFLICT (key) DO UPDATE SET max = excluded.max";
/// A key that nothing keeps goes, another one only loses its limit.
pub(super) const DELETE_LIMITS: &str = "WITH asked AS MATERIALIZED ( \
       SELECT place, task_limit.key, task_limit.used = 0 AND task_limit.lanes = 0 AS idle \
       FROM unnest($1::text[]) WITH ORDINALITY given (key, place) \
       CROSS JOIN LATERAL (SELECT * FROM sm.task_limit WHERE task_limit.key = given.key AND max IS NOT NULL OFFSET 0) task_limit), \
     gone AS (DELETE FROM sm.task_limit USING asked WHERE task_limit.key = asked.key AND idle), \
     undefined AS (UPDATE sm.task_limit SET max = NULL FROM asked WHERE task_limit.key = asked.key AND NOT idle) \
     SELECT place FROM asked";
pub(super) const LIMITS: &str = "SELECT task_limit.key, max, used, place \
     FROM unnest($1::text[]) WITH ORDINALITY given (key, place) \
     CROSS JOIN LATERAL (SELECT * FROM sm.task_limit WHERE task_limit.key = given.key OFFSET 0) task_limit";
pub(super) const DEFINED_LIMITS: &str =
    "SELECT key, max, used FROM sm.task_limit WHERE max IS NOT NULL ORDER BY key";

fn texts<T: AsRef<str>>(names: &[T]) -> Vec<String> {
    names.iter().map(|name| name.as_ref().to_owned()).collect()
}

/// The last of each name: a full replacement that is given twice counts as it was given last.
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

/// Slots of one pool, by what its tasks are doing.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    running: i64,
    queued: i64,
    scheduled: i64,
    sensing: i64,
}

impl Db<'_> {
    fn put_pools(&mut self, pools: &[PoolSpec]) -> Outcome<()> {
        let pools = last_of_each(pools, |pool| pool.name.as_str());
        let names: Vec<String> = pools.iter().map(|pool| pool.name.as_str().to_owned()).collect();
        let slots: Vec<Option<i64>> = pools.iter().map(|pool| pool.slots.total().map(i64::from)).collect();
        let sensing: Vec<i64> = pools.iter().map(|pool| pool.sensing_keeps_slots.code()).collect();
        let descriptions: Vec<String> =
            pools.iter().map(|pool| escape(&pool.description).into_owned()).collect();
        self.one(ask!(PUT_POOLS, names, slots, sensing, descriptions)).map(|_| ())
    }

    fn delete_pools(&mut self, names: &[PoolName]) -> Outcome<Vec<PoolDeletion>> {
        let mut answers = vec![PoolDeletion::Unknown; names.len()];
        let mut deleted = HashSet::new();
        for row in self.one(ask!(DELETE_POOLS, texts(names)))? {
            let (at, used) = (row::place(&row, 0)?, row::value(&row, 1)?);
            let (Some(name), Some(answer)) = (names.get(at), answers.get_mut(at)) else { continue };
            *answer = match used {
                _ if name.as_str() == PoolName::DEFAULT => PoolDeletion::IsDefault,
                0 if deleted.insert(name) => PoolDeletion::Deleted,
                0 => PoolDeletion::Unknown,
                used => PoolDeletion::InUse(used),
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
        let [pools, slots] = self.all([ask!(POOLS, texts(names)), ask!(SLOT_SUMS)])?;
        let mut sums: HashMap<String, Sums> = HashMap::new();
        for row in &slots {
            let sums = sums.entry(row::value(row, 0)?).or_default();
            let sum = match row::value::<i64>(row, 1)? {
                0 => &mut sums.scheduled,
                1 => &mut sums.queued,
                2 => &mut sums.running,
                _ => &mut sums.sensing,
            };
            *sum = row::value(row, 2)?;
        }
        Self::placed(&pools, names.len(), 5, |row| {
            let pool = pool(row)?;
            let sums = sums.get(pool.spec.name.as_str()).copied().unwrap_or_default();
            Ok(PoolStats::new(&pool, sums.running, sums.queued, sums.scheduled, sums.sensing))
        })
    }

    fn delete_limits(&mut self, keys: &[LimitKey]) -> Outcome<Vec<LimitDeletion>> {
        let mut answers = vec![LimitDeletion::NotDefined; keys.len()];
        let mut deleted = HashSet::new();
        let mut found = Vec::new();
        for row in self.one(ask!(DELETE_LIMITS, texts(keys)))? {
            found.push(row::place(&row, 0)?);
        }
        found.sort_unstable();
        for at in found {
            if let (Some(key), Some(answer)) = (keys.get(at), answers.get_mut(at))
                && deleted.insert(key)
            {
                *answer = LimitDeletion::Deleted;
            }
        }
        Ok(answers)
    }
}

impl PoolTx for PostgresBackend<'_> {
    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()> {
        self.tell(News::Capacity, |db| if pools.is_empty() { Ok(()) } else { db.put_pools(pools) })
    }

    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<PoolDeletion>> {
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
        self.tell(News::Capacity, |db| {
            if limits.is_empty() {
                return Ok(());
            }
            let limits = last_of_each(limits, |limit| limit.key.as_str());
            let keys: Vec<String> = limits.iter().map(|limit| limit.key.as_str().to_owned()).collect();
            let max: Vec<i64> = limits.iter().map(|limit| limit.max.into()).collect();
            db.one(ask!(PUT_LIMITS, keys, max)).map(|_| ())
        })
    }

    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<LimitDeletion>> {
        self.tell(News::Capacity, |db| if keys.is_empty() { Ok(Vec::new()) } else { db.delete_limits(keys) })
    }

    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>> {
        self.read(|db| {
            if keys.is_empty() {
                return Ok(Vec::new());
            }
            Db::placed(&db.one(ask!(LIMITS, texts(keys)))?, keys.len(), 3, limit)
        })
    }

    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>> {
        self.read(|db| db.one(ask!(DEFINED_LIMITS))?.iter().map(limit).collect())
    }
}
