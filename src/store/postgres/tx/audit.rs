//! The audit: every counter against what it counts. Reads all tasks.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::wire::ask;
use super::{Db, row};
use crate::admission::LaneKey;
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskNo;
use crate::store::Discrepancy;
use crate::store::code::from_task_state;

const LANES: &str = "SELECT no, pool, slots, limits, ready, tasks FROM sm.lane ORDER BY no";
const SUMS: &str = "SELECT lane, sum(held_slots)::bigint, count(*) FILTER (WHERE state IN (1, 2)), \
     count(*) FILTER (WHERE state = 0), count(*) FROM sm.task GROUP BY lane";
const POOLS: &str = "SELECT name, used FROM sm.pool";
const CAPS: &str = "SELECT key, used, lanes FROM sm.cap";
const BROKEN: &str = "SELECT no, state, held_slots, holder IS NOT NULL AND expires_at IS NOT NULL, \
     (holder IS NULL) <> (expires_at IS NULL) FROM sm.task \
     WHERE (state IN (1, 2)) <> (holder IS NOT NULL AND expires_at IS NOT NULL) \
        OR (holder IS NULL) <> (expires_at IS NULL) OR (held_slots > 0 AND state NOT IN (1, 2, 4)) \
        OR (state = 0 AND due IS NOT NULL) OR (state = 5 AND due IS NULL) \
     ORDER BY no";
const EVENTS: &str = "SELECT task.no, events, coalesce(kept, 0) FROM sm.task \
     LEFT JOIN (SELECT no, count(*) AS kept FROM sm.event GROUP BY no) event ON event.no = task.no \
     WHERE events <> coalesce(kept, 0) ORDER BY task.no";
/// A counter, and what it counts.
#[derive(Default)]
struct Pair {
    counted: i64,
    held: i64,
}

impl Pair {
    fn hold(&mut self, more: i64) {
        self.held = self.held.saturating_add(more);
    }

    fn differs(&self) -> bool {
        self.counted != self.held
    }
}

/// What is said of a lane, and what is found of it.
struct LaneCounts {
    key: LaneKey,
    ready: Pair,
    tasks: Pair,
}

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let [lanes, sums, pools, caps, broken, events] =
            self.all([ask!(LANES), ask!(SUMS), ask!(POOLS), ask!(CAPS), ask!(BROKEN), ask!(EVENTS)])?;
        let mut found = counters(&lanes, &sums, &pools, &caps)?;
        for row in &broken {
            found.push(Discrepancy::Task { task: TaskNo(row::value(row, 0)?), problem: problem(row)? });
        }
        for row in &events {
            let (counted, kept): (i64, i64) = (row::value(row, 1)?, row::value(row, 2)?);
            let problem = format!("it counts {counted} events and has {kept}");
            found.push(Discrepancy::Task { task: TaskNo(row::value(row, 0)?), problem });
        }
        Ok(found)
    }
}

fn counters(lanes: &[Row], sums: &[Row], pools: &[Row], caps: &[Row]) -> Outcome<Vec<Discrepancy>> {
    let mut by_pool: BTreeMap<PoolName, Pair> = BTreeMap::new();
    let mut by_limit: BTreeMap<LimitKey, Pair> = BTreeMap::new();
    let mut limit_lanes: BTreeMap<LimitKey, Pair> = BTreeMap::new();
    let mut by_lane: BTreeMap<i64, LaneCounts> = BTreeMap::new();
    for row in lanes {
        let key = row::lane_key(row, 1)?;
        for limit in &key.limits {
            limit_lanes.entry(limit.clone()).or_default().hold(1);
        }
        let ready = Pair { counted: row::value(row, 4)?, held: 0 };
        let tasks = Pair { counted: row::value(row, 5)?, held: 0 };
        by_lane.insert(row::value(row, 0)?, LaneCounts { key, ready, tasks });
    }
    for row in sums {
        let no: i64 = row::value(row, 0)?;
        let Some(lane) = by_lane.get_mut(&no) else {
            return Err(Fault::Damaged(format!("lane {no} is missing")));
        };
        by_pool.entry(lane.key.pool.clone()).or_default().hold(row::value(row, 1)?);
        for key in &lane.key.limits {
            by_limit.entry(key.clone()).or_default().hold(row::value(row, 2)?);
        }
        lane.ready.held = row::value(row, 3)?;
        lane.tasks.held = row::value(row, 4)?;
    }
    for row in pools {
        by_pool.entry(row::name(row, 0)?).or_default().counted = row::value(row, 1)?;
    }
    for row in caps {
        by_limit.entry(row::name(row, 0)?).or_default().counted = row::value(row, 1)?;
        limit_lanes.entry(row::name(row, 0)?).or_default().counted = row::value(row, 2)?;
    }
    let mut found = Vec::new();
    for (pool, Pair { counted, held }) in by_pool.into_iter().filter(|(_, pair)| pair.differs()) {
        found.push(Discrepancy::Pool { pool, counted, held });
    }
    for (key, Pair { counted, held }) in by_limit.into_iter().filter(|(_, pair)| pair.differs()) {
        found.push(Discrepancy::Limit { key, counted, held });
    }
    for (key, Pair { counted, held }) in limit_lanes.into_iter().filter(|(_, pair)| pair.differs()) {
        found.push(Discrepancy::LimitLanes { key, counted, held });
    }
    for lane in by_lane.values().filter(|lane| lane.ready.differs()) {
        let Pair { counted, held } = lane.ready;
        found.push(Discrepancy::Lane { lane: lane.key.clone(), counted, held });
    }
    for lane in by_lane.into_values().filter(|lane| lane.tasks.differs()) {
        let Pair { counted, held } = lane.tasks;
        found.push(Discrepancy::LaneTasks { lane: lane.key, counted, held });
    }
    Ok(found)
}

fn problem(row: &Row) -> Outcome<String> {
    let state = from_task_state(row::value(row, 1)?)?;
    let (held, leased, half): (i64, bool, bool) =
        (row::value(row, 2)?, row::value(row, 3)?, row::value(row, 4)?);
    Ok(match (state.is_leased(), leased) {
        (true, false) => format!("it is {state} without a lease"),
        (false, true) => format!("it is {state} and has a lease"),
        _ if half => format!("it is {state} and has half a lease"),
        _ if held > 0 => format!("it is {state} and holds {held} slots"),
        _ => format!("it is {state}, and its due instant says otherwise"),
    })
}
