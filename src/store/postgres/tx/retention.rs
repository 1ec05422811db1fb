//! Tasks that ended are kept for a while.

use super::super::error::Outcome;
use super::super::wire::ask;
use super::sensor::numbers;
use super::{Db, clamp, first, row};
use crate::time::Timestamp;

/// Deletes ended tasks and their sensors, unless events or the last change of a sensor wait for a number, or
/// events for being acknowledged; with the last task of a lane the lane, and with the last lane that
/// names it a limit key that nothing else keeps.
pub(super) const FORGET_ENDED: &str = "WITH gone AS MATERIALIZED ( \
       SELECT no, lane FROM sm.task WHERE state >= 6 AND ended_at < $1::bigint \
         AND (ended_at < $2::bigint OR (SELECT sensor.no FROM sm.sensor WHERE sensor.no = task.no) IS NULL) \
         AND NOT EXISTS (SELECT FROM sm.event WHERE event.no = task.no OFFSET 0) \
         AND NOT EXISTS (SELECT FROM sm.event_inbox WHERE event_inbox.no = task.no OFFSET 0) \
         AND NOT EXISTS (SELECT FROM sm.sensor_inbox WHERE sensor_inbox.no = task.no OFFSET 0) \
       ORDER BY ended_at, no LIMIT $3::bigint), \
     sensors AS (DELETE FROM sm.sensor USING gone WHERE sensor.no = gone.no RETURNING sensor.no), \
     changes AS (INSERT INTO sm.sensor_inbox (no, kind) SELECT no, 2 FROM sensors), \
     tasks AS (DELETE FROM sm.task USING gone WHERE task.no = gone.no), \
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
        let forget = ask!(FORGET_ENDED, before.as_micros(), sensors_before.as_micros(), clamp(limit));
        let [attempt, number] = numbers::number(limit);
        let [gone, _, _] = self.all([forget, attempt, number])?;
        row::whole(first(&gone)?, 0)
    }
}
