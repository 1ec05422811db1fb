//! Tasks that ended are kept for a while.

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, clamp};
use crate::time::Timestamp;

/// Deletes ended tasks and their sensors; with the last task of a lane the lane, and with the last lane that
/// names it a limit key that nothing else keeps.
pub(super) const FORGET_ENDED: &str = "WITH gone AS MATERIALIZED ( \
       SELECT no, lane FROM sm.task WHERE state >= 6 AND events = 0 AND ended_at < $1::bigint \
         AND (ended_at < $2::bigint OR (SELECT sensor.no FROM sm.sensor WHERE sensor.no = task.no) IS NULL) \
       ORDER BY ended_at, no LIMIT $3::bigint), \
     sensors AS (DELETE FROM sm.sensor USING gone WHERE sensor.no = gone.no RETURNING sensor.changed), \
     tasks AS (DELETE FROM sm.task USING gone WHERE task.no = gone.no), \
     forgotten AS (UPDATE sm.counter SET value = greatest(value, last.changed) \
       FROM (SELECT max(changed) AS changed FROM sensors) last \
       WHERE counter.name = 'forgotten' AND last.changed > counter.value), \
     emptied AS MATERIALIZED (SELECT lane.no, lane.tasks, lane.limits, less.count \
       FROM (SELECT lane, count(*) AS count FROM gone GROUP BY lane) less \
       CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.no = less.lane OFFSET 0) lane), \
     kept_lanes AS (UPDATE sm.lane SET tasks = lane.tasks - emptied.count \
       FROM emptied WHERE lane.no = emptied.no AND emptied.tasks > emptied.count), \
     lost_lanes AS (DELETE FROM sm.lane USING emptied WHERE lane.no = emptied.no AND emptied.tasks <= emptied.count), \
     unnamed AS MATERIALIZED (SELECT task_limit.key, named.count, \
         task_limit.max IS NULL AND task_limit.used = 0 AND task_limit.lanes <= named.count AS idle \
       FROM (SELECT named.key, count(*) AS count \
             FROM emptied CROSS JOIN LATERAL json_array_elements_text(emptied.limits::json) named (key) \
             WHERE emptied.tasks <= emptied.count GROUP BY named.key) named \
       CROSS JOIN LATERAL (SELECT * FROM sm.task_limit WHERE task_limit.key = named.key OFFSET 0) task_limit), \
     kept_limits AS (UPDATE sm.task_limit SET lanes = task_limit.lanes - unnamed.count \
       FROM unnamed WHERE task_limit.key = unnamed.key AND NOT idle), \
     lost_limits AS (DELETE FROM sm.task_limit USING unnamed WHERE task_limit.key = unnamed.key AND idle) \
     SELECT count(*) FROM gone";

impl Db<'_> {
    pub(super) fn forget_ended(
        &mut self,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> Outcome<usize> {
        self.number(ask!(FORGET_ENDED, before.as_micros(), sensors_before.as_micros(), clamp(limit)))
    }
}
