//! Repairs counters: each is set to what it counts. There is only one writer, so nothing changes meanwhile.

use std::collections::BTreeMap;

use super::super::error::Outcome;
use super::Db;
use super::audit::{LIMITS, POOLS, SUMS};
use super::share::SHARES;
use crate::id::{LimitKey, PoolName};
use crate::store::Discrepancy;
use crate::store::contract::repaired;
use crate::store::sql::row;

const SET_LANE: &str = "UPDATE sm_lane SET ready = ?2, tasks = ?3, ended = ?4 WHERE no = ?1";
const SET_POOL: &str = "UPDATE sm_pool SET used = ?2 WHERE name = ?1";
const SET_LIMIT: &str = "INSERT INTO sm_task_limit (key, used, lanes) VALUES (?1, ?2, ?3) \
     ON CONFLICT (key) DO UPDATE SET used = excluded.used, lanes = excluded.lanes";
const SET_SHARE: &str = "INSERT INTO sm_share_use (pool, share, held, lanes, stamp) \
     VALUES (?1, ?2, ?3, ?4, 2 * (SELECT value FROM sm_counter WHERE name = 'grants')) \
     ON CONFLICT (pool, share) DO UPDATE SET held = excluded.held, lanes = excluded.lanes";
const DELETE_UNUSED: &str = "DELETE FROM sm_task_limit WHERE defined = 0 AND used = 0 AND lanes = 0";

/// What the tasks of a lane hold: slots and leases. Then how many are ready, how many have not ended, and how
/// many have.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    slots: i64,
    leases: i64,
    ready: i64,
    tasks: i64,
    ended: i64,
}

impl Db<'_> {
    pub(super) fn repair_counters(&mut self) -> Outcome<Vec<Discrepancy>> {
        let found = self.audit()?;
        if found.iter().all(|found| matches!(found, Discrepancy::Task { .. })) {
            return Ok(Vec::new());
        }
        let mut by_lane: BTreeMap<i64, Sums> = BTreeMap::new();
        self.each(SUMS, |row| {
            let [slots, leases, ready, tasks, ended] =
                [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
            by_lane.insert(row.get(0)?, Sums { slots, leases, ready, tasks, ended });
            Ok(())
        })?;
        // All known counters begin at zero, because a counter that no task holds does not occur among the tasks.
        let mut pools: BTreeMap<PoolName, i64> = BTreeMap::new();
        self.each(POOLS, |row| {
            pools.insert(row::name(row, 0)?, 0);
            Ok(())
        })?;
        let mut limits: BTreeMap<LimitKey, [i64; 2]> = BTreeMap::new();
        self.each(LIMITS, |row| {
            limits.insert(row::name(row, 0)?, [0; 2]);
            Ok(())
        })?;
        let mut shares: BTreeMap<(PoolName, LimitKey), [i64; 2]> = BTreeMap::new();
        self.each(SHARES, |row| {
            shares.insert((row::name(row, 0)?, row::name(row, 1)?), [0; 2]);
            Ok(())
        })?;
        for (no, (lane, _)) in self.all_lanes()? {
            let sums = by_lane.get(&no).copied().unwrap_or_default();
            for (pool, slots) in lane.key.held(sums.slots) {
                if let Some(used) = pools.get_mut(pool) {
                    *used = used.saturating_add(slots);
                }
                if let Some(share) = &lane.key.share {
                    let [held, _] = shares.entry((pool.clone(), share.clone())).or_default();
                    *held = held.saturating_add(slots);
                }
            }
            if let Some(share) = lane.key.share.as_ref().filter(|_| sums.tasks > 0) {
                shares.entry((lane.key.pool.clone(), share.clone())).or_default()[1] += 1;
            }
            for (key, count) in lane.key.counted().filter(|_| sums.tasks > 0) {
                let [used, lanes] = limits.entry(key.clone()).or_default();
                *used = used.saturating_add(sums.leases.saturating_mul(count.into()));
                *lanes += 1;
            }
            match (sums.tasks, sums.ended) {
                (0, 0) => self.delete_lane(no)?,
                _ => {
                    self.prepare(SET_LANE)?.execute((no, sums.ready, sums.tasks, sums.ended))?;
                }
            }
        }
        for (name, used) in &pools {
            self.prepare(SET_POOL)?.execute((name.as_str(), used))?;
        }
        for (key, [used, lanes]) in &limits {
            self.prepare(SET_LIMIT)?.execute((key.as_str(), used, lanes))?;
        }
        for ((pool, share), [held, lanes]) in &shares {
            self.prepare(SET_SHARE)?.execute((pool.as_str(), share.as_str(), held, lanes))?;
        }
        self.prepare(DELETE_UNUSED)?.execute([])?;
        self.refile()?;
        let left = self.audit()?;
        Ok(repaired(found, &left))
    }
}
