//! The audit: every counter against what it counts. Reads all tasks, a page at a time: however many there
//! are, no statement takes long, and so none ends at the limit of time for a statement.

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, first, row};
use crate::store::Discrepancy;
use crate::store::sql::audit::{Counters, Pair, broken_task, events_differ};

/// How many tasks or events are read by one statement.
const PAGE: i64 = 5_000;

const LANES: &str = "SELECT no, pool, slots, limits, ready, tasks FROM sm.lane ORDER BY no";
const POOLS: &str = "SELECT name, used FROM sm.pool";
const LIMITS: &str = "SELECT key, used, lanes FROM sm.task_limit";
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

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let [lanes, pools, limits, tasks, events] = self.all([
            ask!(LANES),
            ask!(POOLS),
            ask!(LIMITS),
            ask!(TASK_PAGE, 0, PAGE),
            ask!(EVENT_PAGE, 0, PAGE),
        ])?;
        let mut counters = Counters::default();
        for row in &lanes {
            let (key, ready, tasks) = (row::lane_key(row, 1)?, row::value(row, 4)?, row::value(row, 5)?);
            counters.lane(row::value(row, 0)?, key, ready, tasks);
        }
        // Of each task that has any or counts any.
        let mut kept_events: BTreeMap<i64, Pair> = BTreeMap::new();
        let mut broken = Vec::new();
        let (mut after, mut last) = (0, row::value(first(&tasks)?, 0)?);
        while let Some(to) = last {
            let [sums, wrong, counted, next] = self.all([
                ask!(SUMS, after, to),
                ask!(BROKEN, after, to),
                ask!(COUNTED, after, to),
                ask!(TASK_PAGE, to, PAGE),
            ])?;
            sums.iter().try_for_each(|row| counters.tasks(row))?;
            for row in &counted {
                kept_events.entry(row::value(row, 0)?).or_default().counted = row::value(row, 1)?;
            }
            for row in &wrong {
                broken.push(broken_task(row)?);
            }
            (after, last) = (to, row::value(first(&next)?, 0)?);
        }
        let (mut after, mut last) = (0, row::value(first(&events)?, 0)?);
        while let Some(to) = last {
            let [kept, next] = self.all([ask!(KEPT, after, to), ask!(EVENT_PAGE, to, PAGE)])?;
            for row in &kept {
                kept_events.entry(row::value(row, 0)?).or_default().hold(row::value(row, 1)?);
            }
            (after, last) = (to, row::value(first(&next)?, 0)?);
        }
        pools.iter().try_for_each(|row| counters.pool(row))?;
        limits.iter().try_for_each(|row| counters.limit(row))?;
        let mut found = counters.discrepancies();
        found.extend(broken);
        found.extend(self.events_differ(kept_events)?);
        Ok(found)
    }

    /// The tasks that do not count the events they have. An event may outlive its task.
    fn events_differ(&mut self, events: BTreeMap<i64, Pair>) -> Outcome<Vec<Discrepancy>> {
        let differ: Vec<(i64, Pair)> = events.into_iter().filter(|(_, pair)| pair.differs()).collect();
        let mut found = Vec::new();
        for page in differ.chunks(PAGE as usize) {
            let ids: Vec<i64> = page.iter().map(|(id, _)| *id).collect();
            let there = self.one(ask!(THERE, ids))?;
            let there: BTreeSet<i64> = there.iter().map(|row| row::value(row, 0)).collect::<Outcome<_>>()?;
            for (id, Pair { counted, held }) in page.iter().filter(|(id, _)| there.contains(id)) {
                found.push(events_differ(*id, *counted, *held));
            }
        }
        Ok(found)
    }
}
