//! The audit compares every counter with what it counts.

use std::collections::BTreeMap;

use super::codes::from_task_state;
use super::row::{Damaged, Read, ReadRow, name};
use crate::admission::LaneKey;
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskId;
use crate::store::Discrepancy;

/// A counter's value, and the value that it should have.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::store) struct Pair {
    pub(in crate::store) counted: i64,
    pub(in crate::store) held: i64,
}

impl Pair {
    pub(in crate::store) fn hold(&mut self, more: i64) {
        self.held = self.held.saturating_add(more);
    }

    pub(in crate::store) fn differs(&self) -> bool {
        self.counted != self.held
    }
}

/// A lane's own counts, and the audit's.
#[derive(Debug)]
struct LaneCounts {
    key: LaneKey,
    ready: Pair,
    tasks: Pair,
}

/// The counters of pools, limits and lanes.
#[derive(Debug, Default)]
pub(in crate::store) struct Counters {
    pools: BTreeMap<PoolName, Pair>,
    limits: BTreeMap<LimitKey, Pair>,
    limit_lanes: BTreeMap<LimitKey, Pair>,
    shares: BTreeMap<(PoolName, LimitKey), Pair>,
    share_lanes: BTreeMap<(PoolName, LimitKey), Pair>,
    lanes: BTreeMap<i64, LaneCounts>,
}

impl Counters {
    /// Records a lane, with its own counts of ready tasks and of tasks that have not ended. Lanes come
    /// before tasks.
    pub(in crate::store) fn lane(&mut self, id: i64, key: LaneKey, ready: i64, tasks: i64) {
        // A lane in which all tasks have ended does not count for its limits.
        for limit in key.limits.iter().filter(|_| tasks > 0) {
            self.limit_lanes.entry(limit.clone()).or_default().hold(1);
        }
        if let Some(share) = key.share.as_ref().filter(|_| tasks > 0) {
            self.share_lanes.entry((key.pool.clone(), share.clone())).or_default().hold(1);
        }
        let (ready, tasks) = (Pair { counted: ready, held: 0 }, Pair { counted: tasks, held: 0 });
        self.lanes.insert(id, LaneCounts { key, ready, tasks });
    }

    /// Adds tasks of a lane: its number, the slots they hold, and how many are leased, ready, and have not
    /// ended.
    pub(in crate::store) fn tasks<R: ReadRow>(&mut self, row: &R) -> Read<(), R> {
        let id = row.integer(0)?;
        let lane = self.lanes.get_mut(&id).ok_or_else(|| Damaged(format!("lane {id} is missing")))?;
        for (pool, slots) in lane.key.held(row.integer(1)?) {
            self.pools.entry(pool.clone()).or_default().hold(slots);
            if let Some(share) = &lane.key.share {
                self.shares.entry((pool.clone(), share.clone())).or_default().hold(slots);
            }
        }
        for (key, count) in lane.key.counted() {
            self.limits.entry(key.clone()).or_default().hold(row.integer(2)?.saturating_mul(count.into()));
        }
        lane.ready.hold(row.integer(3)?);
        lane.tasks.hold(row.integer(4)?);
        Ok(())
    }

    /// Records the used slots of a pool: its name and their number.
    pub(in crate::store) fn pool<R: ReadRow>(&mut self, row: &R) -> Read<(), R> {
        self.pools.entry(name(row, 0)?).or_default().counted = row.integer(1)?;
        Ok(())
    }

    /// Records what counts against a limit: its key, the number of tasks, and that of lanes.
    pub(in crate::store) fn limit<R: ReadRow>(&mut self, row: &R) -> Read<(), R> {
        self.limits.entry(name(row, 0)?).or_default().counted = row.integer(1)?;
        self.limit_lanes.entry(name(row, 0)?).or_default().counted = row.integer(2)?;
        Ok(())
    }

    /// Records what a share holds of a pool: the pool, the share, the slots, and the number of its lanes.
    pub(in crate::store) fn share<R: ReadRow>(&mut self, row: &R) -> Read<(), R> {
        let pair = (name(row, 0)?, name(row, 1)?);
        self.shares.entry(pair.clone()).or_default().counted = row.integer(2)?;
        self.share_lanes.entry(pair).or_default().counted = row.integer(3)?;
        Ok(())
    }

    /// Returns every counter that differs from what it counts.
    pub(in crate::store) fn discrepancies(self) -> Vec<Discrepancy> {
        let mut found = Vec::new();
        for (pool, Pair { counted, held }) in self.pools.into_iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::Pool { pool, counted, held });
        }
        for (key, Pair { counted, held }) in self.limits.into_iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::Limit { key, counted, held });
        }
        for (key, Pair { counted, held }) in self.limit_lanes.into_iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::LimitLanes { key, counted, held });
        }
        let differ = |shares: BTreeMap<(PoolName, LimitKey), Pair>| {
            shares.into_iter().filter(|(_, pair)| pair.differs())
        };
        for ((pool, share), Pair { counted, held }) in differ(self.shares) {
            found.push(Discrepancy::Share { pool, share, counted, held });
        }
        for ((pool, share), Pair { counted, held }) in differ(self.share_lanes) {
            found.push(Discrepancy::ShareLanes { pool, share, counted, held });
        }
        for lane in self.lanes.values().filter(|lane| lane.ready.differs()) {
            let Pair { counted, held } = lane.ready;
            found.push(Discrepancy::Lane { lane: lane.key.clone(), counted, held });
        }
        for lane in self.lanes.values().filter(|lane| lane.tasks.differs()) {
            let Pair { counted, held } = lane.tasks;
            found.push(Discrepancy::LaneTasks { lane: lane.key.clone(), counted, held });
        }
        found
    }
}

/// Describes a task whose columns contradict each other: its number, state, held slots, whether it has a
/// whole lease, whether it has half a lease, whether it has a deadline that fits no lease.
pub(in crate::store) fn broken_task<R: ReadRow>(row: &R) -> Read<Discrepancy, R> {
    let state = from_task_state(row.integer(1)?)?;
    let (held, leased, half) = (row.integer(2)?, row.integer(3)? != 0, row.integer(4)? != 0);
    let problem = match (state.is_leased(), leased) {
        (true, false) => format!("it is {state} without a lease"),
        (false, true) => format!("it is {state} and has a lease"),
        _ if half => format!("it is {state} and has half a lease"),
        _ if row.integer(5)? != 0 => format!("it is {state}, and a cancel's deadline fits no lease of it"),
        _ if held > 0 => format!("it is {state} and holds {held} slots"),
        _ => format!("it is {state}, and its due instant says otherwise"),
    };
    Ok(Discrepancy::Task { task: TaskId(row.integer(0)?), problem })
}
