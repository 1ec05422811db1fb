//! The audit: every counter against what it counts. Reads all tasks.

use std::collections::BTreeMap;

use super::super::error::Outcome;
use super::codes::from_task_state;
use super::{Db, row};
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskNo;
use crate::store::Discrepancy;

const SUMS: &str = "SELECT lane, sum(held_slots), sum(state IN (1, 2)), sum(state = 0), count(*) \
     FROM sm_task GROUP BY lane";
const POOLS: &str = "SELECT name, used FROM sm_pool";
const CAPS: &str = "SELECT key, used, lanes FROM sm_cap";
const BROKEN: &str = "SELECT no, state, held_slots, holder IS NOT NULL AND expires_at IS NOT NULL, \
     (holder IS NULL) <> (expires_at IS NULL) FROM sm_task \
     WHERE (state IN (1, 2)) <> (holder IS NOT NULL AND expires_at IS NOT NULL) \
        OR (holder IS NULL) <> (expires_at IS NULL) OR (held_slots > 0 AND state NOT IN (1, 2, 4)) \
        OR (state = 0 AND due IS NOT NULL) OR (state = 5 AND due IS NULL) \
     ORDER BY no";

const EVENTS: &str = "SELECT task.no, events, ifnull(kept, 0) FROM sm_task task \
     LEFT JOIN (SELECT no, count(*) AS kept FROM sm_event GROUP BY no) event ON event.no = task.no \
     WHERE events <> ifnull(kept, 0) ORDER BY task.no";

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let lanes = self.all_lanes()?;
        let mut pools: BTreeMap<PoolName, Pair> = BTreeMap::new();
        let mut limits: BTreeMap<LimitKey, Pair> = BTreeMap::new();
        let mut limit_lanes: BTreeMap<LimitKey, Pair> = BTreeMap::new();
        let mut counts: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
        for key in lanes.values().flat_map(|(lane, _)| &lane.key.limits) {
            limit_lanes.entry(key.clone()).or_default().hold(1);
        }

        let mut statement = self.prepare(SUMS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let no = row.get(0)?;
            let Some((lane, _)) = lanes.get(&no) else {
                return Err(super::Fault::Damaged(format!("lane {no} is missing")));
            };
            pools.entry(lane.key.pool.clone()).or_default().hold(row.get(1)?);
            for key in &lane.key.limits {
                limits.entry(key.clone()).or_default().hold(row.get(2)?);
            }
            counts.insert(no, [row.get(3)?, row.get(4)?]);
        }
        let mut statement = self.prepare(POOLS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            pools.entry(row::name(row, 0)?).or_default().counted = row.get(1)?;
        }
        let mut statement = self.prepare(CAPS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            limits.entry(row::name(row, 0)?).or_default().counted = row.get(1)?;
            limit_lanes.entry(row::name(row, 0)?).or_default().counted = row.get(2)?;
        }

        let mut found = Vec::new();
        for (pool, Pair { counted, held }) in pools.into_iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::Pool { pool, counted, held });
        }
        for (key, Pair { counted, held }) in limits.into_iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::Limit { key, counted, held });
        }
        for (key, Pair { counted, held }) in limit_lanes.into_iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::LimitLanes { key, counted, held });
        }
        let held = |no: &i64| counts.get(no).copied().unwrap_or_default();
        for (no, (lane, _)) in &lanes {
            let (counted, [held, _]) = (i64::try_from(lane.ready).unwrap_or(i64::MAX), held(no));
            if counted != held {
                found.push(Discrepancy::Lane { lane: lane.key.clone(), counted, held });
            }
        }
        for (no, (lane, counted)) in &lanes {
            let (counted, [_, held]) = (*counted, held(no));
            if counted != held {
                found.push(Discrepancy::LaneTasks { lane: lane.key.clone(), counted, held });
            }
        }
        self.broken(&mut found)?;
        Ok(found)
    }

    fn broken(&self, found: &mut Vec<Discrepancy>) -> Outcome<()> {
        let mut statement = self.prepare(BROKEN)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let state = from_task_state(row.get(1)?)?;
            let (held, leased, half): (i64, bool, bool) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let problem = match (state.is_leased(), leased) {
                (true, false) => format!("it is {state} without a lease"),
                (false, true) => format!("it is {state} and has a lease"),
                _ if half => format!("it is {state} and has half a lease"),
                _ if held > 0 => format!("it is {state} and holds {held} slots"),
                _ => format!("it is {state}, and its due instant says otherwise"),
            };
            found.push(Discrepancy::Task { task: TaskNo(row.get(0)?), problem });
        }
        let mut statement = self.prepare(EVENTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (counted, kept): (i64, i64) = (row.get(1)?, row.get(2)?);
            let problem = format!("it counts {counted} events and has {kept}");
            found.push(Discrepancy::Task { task: TaskNo(row.get(0)?), problem });
        }
        Ok(())
    }
}

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
