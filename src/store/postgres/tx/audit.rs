//! The audit: every counter against what it counts. Reads all tasks, a page at a time: however many there
//! are, no statement takes long, and so none ends at the limit of time for a statement.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::wire::ask;
use super::{Db, first, row};
use crate::admission::LaneKey;
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskNo;
use crate::store::Discrepancy;
use crate::store::sql::codes::from_task_state;

/// How many tasks or events are read by one statement.
const PAGE: i64 = 5_000;

const LANES: &str = "SELECT no, pool, slots, limits, ready, tasks FROM sm.lane ORDER BY no";
const POOLS: &str = "SELECT name, used FROM sm.pool";
const CAPS: &str = "SELECT key, used, lanes FROM sm.cap";
/// The last task of the page after this one.
const TASK_PAGE: &str =
    "SELECT max(no) FROM (SELECT no FROM sm.task WHERE no > $1 ORDER BY no LIMIT $2) page";
const SUMS: &str = "SELECT lane, sum(held_slots)::bigint, count(*) FILTER (WHERE state IN (1, 2)), \
     count(*) FILTER (WHERE state = 0), count(*) FROM sm.task WHERE no > $1 AND no <= $2 GROUP BY lane";
const BROKEN: &str = "SELECT no, state, held_slots, holder IS NOT NULL AND expires_at IS NOT NULL, \
     (holder IS NULL) <> (expires_at IS NULL) FROM sm.task WHERE no > $1 AND no <= $2 \
     AND ((state IN (1, 2)) <> (holder IS NOT NULL AND expires_at IS NOT NULL) \
        OR (holder IS NULL) <> (expires_at IS NULL) OR (held_slots > 0 AND state NOT IN (1, 2, 4)) \
        OR (state = 0 AND due IS NOT NULL) OR (state = 5 AND due IS NULL)) \
     ORDER BY no";
const COUNTED: &str = "SELECT no, events FROM sm.task WHERE no > $1 AND no <= $2 AND events <> 0";
/// The last event of the page after this one.
const EVENT_PAGE: &str =
    "SELECT max(seq) FROM (SELECT seq FROM sm.event WHERE seq > $1 ORDER BY seq LIMIT $2) page";
const KEPT: &str = "SELECT no, count(*) FROM sm.event WHERE seq > $1 AND seq <= $2 GROUP BY no";
const THERE: &str = "SELECT no FROM sm.task WHERE no = ANY($1)";

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

/// What is counted, by what counts it.
#[derive(Default)]
struct Counters {
    pools: BTreeMap<PoolName, Pair>,
    limits: BTreeMap<LimitKey, Pair>,
    limit_lanes: BTreeMap<LimitKey, Pair>,
    lanes: BTreeMap<i64, LaneCounts>,
    /// Of each task that has any or counts any.
    events: BTreeMap<i64, Pair>,
}

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let [lanes, pools, caps, tasks, events] = self.all([
            ask!(LANES),
            ask!(POOLS),
            ask!(CAPS),
            ask!(TASK_PAGE, 0, PAGE),
            ask!(EVENT_PAGE, 0, PAGE),
        ])?;
        let mut counters = Counters::default();
        counters.lanes(&lanes)?;
        let mut broken = Vec::new();
        let (mut after, mut last) = (0, row::value(first(&tasks)?, 0)?);
        while let Some(to) = last {
            let [sums, wrong, counted, next] = self.all([
                ask!(SUMS, after, to),
                ask!(BROKEN, after, to),
                ask!(COUNTED, after, to),
                ask!(TASK_PAGE, to, PAGE),
            ])?;
            counters.tasks(&sums)?;
            for row in &counted {
                counters.events.entry(row::value(row, 0)?).or_default().counted = row::value(row, 1)?;
            }
            for row in &wrong {
                let task = TaskNo(row::value(row, 0)?);
                broken.push(Discrepancy::Task { task, problem: problem(row)? });
            }
            (after, last) = (to, row::value(first(&next)?, 0)?);
        }
        let (mut after, mut last) = (0, row::value(first(&events)?, 0)?);
        while let Some(to) = last {
            let [kept, next] = self.all([ask!(KEPT, after, to), ask!(EVENT_PAGE, to, PAGE)])?;
            for row in &kept {
                counters.events.entry(row::value(row, 0)?).or_default().hold(row::value(row, 1)?);
            }
            (after, last) = (to, row::value(first(&next)?, 0)?);
        }
        counters.used(&pools, &caps)?;
        let mut found = counters.discrepancies();
        found.extend(broken);
        found.extend(self.events_differ(counters.events)?);
        Ok(found)
    }

    /// The tasks that do not count the events they have. An event may outlive its task.
    fn events_differ(&mut self, events: BTreeMap<i64, Pair>) -> Outcome<Vec<Discrepancy>> {
        let differ: Vec<(i64, Pair)> = events.into_iter().filter(|(_, pair)| pair.differs()).collect();
        let mut found = Vec::new();
        for page in differ.chunks(PAGE as usize) {
            let nos: Vec<i64> = page.iter().map(|(no, _)| *no).collect();
            let there = self.one(ask!(THERE, nos))?;
            let there: BTreeSet<i64> = there.iter().map(|row| row::value(row, 0)).collect::<Outcome<_>>()?;
            for (no, Pair { counted, held }) in page.iter().filter(|(no, _)| there.contains(no)) {
                let problem = format!("it counts {counted} events and has {held}");
                found.push(Discrepancy::Task { task: TaskNo(*no), problem });
            }
        }
        Ok(found)
    }
}

impl Counters {
    fn lanes(&mut self, lanes: &[Row]) -> Outcome<()> {
        for row in lanes {
            let key = row::lane_key(row, 1)?;
            for limit in &key.limits {
                self.limit_lanes.entry(limit.clone()).or_default().hold(1);
            }
            let ready = Pair { counted: row::value(row, 4)?, held: 0 };
            let tasks = Pair { counted: row::value(row, 5)?, held: 0 };
            self.lanes.insert(row::value(row, 0)?, LaneCounts { key, ready, tasks });
        }
        Ok(())
    }

    /// Counts what the tasks of a page hold.
    fn tasks(&mut self, sums: &[Row]) -> Outcome<()> {
        for row in sums {
            let no: i64 = row::value(row, 0)?;
            let Some(lane) = self.lanes.get_mut(&no) else {
                return Err(Fault::Damaged(format!("lane {no} is missing")));
            };
            self.pools.entry(lane.key.pool.clone()).or_default().hold(row::value(row, 1)?);
            for key in &lane.key.limits {
                self.limits.entry(key.clone()).or_default().hold(row::value(row, 2)?);
            }
            lane.ready.hold(row::value(row, 3)?);
            lane.tasks.hold(row::value(row, 4)?);
        }
        Ok(())
    }

    fn used(&mut self, pools: &[Row], caps: &[Row]) -> Outcome<()> {
        for row in pools {
            self.pools.entry(row::name(row, 0)?).or_default().counted = row::value(row, 1)?;
        }
        for row in caps {
            self.limits.entry(row::name(row, 0)?).or_default().counted = row::value(row, 1)?;
            self.limit_lanes.entry(row::name(row, 0)?).or_default().counted = row::value(row, 2)?;
        }
        Ok(())
    }

    /// Whatever differs of pools, limits and lanes.
    fn discrepancies(&self) -> Vec<Discrepancy> {
        let mut found = Vec::new();
        for (pool, &Pair { counted, held }) in self.pools.iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::Pool { pool: pool.clone(), counted, held });
        }
        for (key, &Pair { counted, held }) in self.limits.iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::Limit { key: key.clone(), counted, held });
        }
        for (key, &Pair { counted, held }) in self.limit_lanes.iter().filter(|(_, pair)| pair.differs()) {
            found.push(Discrepancy::LimitLanes { key: key.clone(), counted, held });
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
