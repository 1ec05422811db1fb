//! The audit: every counter against what it counts. Reads all tasks, a page at a time: however many there
//! are, no statement takes long, and so none ends at the limit of time for a statement.

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, first, row};
use crate::store::Discrepancy;
use crate::store::sql::audit::{Counters, broken_task};

/// How many tasks are read by one statement.
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

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let [lanes, pools, limits, tasks] =
            self.all([ask!(LANES), ask!(POOLS), ask!(LIMITS), ask!(TASK_PAGE, 0, PAGE)])?;
        let mut counters = Counters::default();
        for row in &lanes {
            let (key, ready, tasks) = (row::lane_key(row, 1)?, row::value(row, 4)?, row::value(row, 5)?);
            counters.lane(row::value(row, 0)?, key, ready, tasks);
        }
        let mut broken = Vec::new();
        let (mut after, mut last) = (0, row::value(first(&tasks)?, 0)?);
        while let Some(to) = last {
            let [sums, wrong, next] =
                self.all([ask!(SUMS, after, to), ask!(BROKEN, after, to), ask!(TASK_PAGE, to, PAGE)])?;
            sums.iter().try_for_each(|row| counters.tasks(row))?;
            for row in &wrong {
                broken.push(broken_task(row)?);
            }
            (after, last) = (to, row::value(first(&next)?, 0)?);
        }
        pools.iter().try_for_each(|row| counters.pool(row))?;
        limits.iter().try_for_each(|row| counters.limit(row))?;
        let mut found = counters.discrepancies();
        found.extend(broken);
        Ok(found)
    }
}
