-- Deletes tasks that ended, with their sensors, earliest first, and returns how many. Rows that somebody else
-- has locked are passed over. Tasks with events stay.
-- $1: those that ended before this instant; $2: the same for those that were sensors; $3: how many.
WITH
old AS MATERIALIZED (
  SELECT idle.no FROM sm.idle
  WHERE idle.state >= 6 AND idle.ended_at < $1::bigint
    AND (idle.ended_at < $2::bigint OR NOT EXISTS (
      SELECT FROM sm.sensor WHERE sensor.no = idle.no OFFSET 0))
    AND NOT EXISTS (SELECT FROM sm.event WHERE event.no = idle.no OFFSET 0)
  ORDER BY idle.ended_at, idle.no
  LIMIT $3::bigint
  FOR UPDATE OF idle SKIP LOCKED
),
gone AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM old)) RETURNING no),
tasks AS (DELETE FROM sm.task WHERE no = ANY (ARRAY(SELECT no FROM gone))),
beats AS (DELETE FROM sm.beat WHERE no = ANY (ARRAY(SELECT no FROM gone))),
sensors AS (DELETE FROM sm.sensor WHERE no = ANY (ARRAY(SELECT no FROM gone)) RETURNING changed),
forgotten AS (
  UPDATE sm.counter SET value = greatest(value, last.changed)
  FROM (SELECT max(changed) AS changed FROM sensors) last
  WHERE counter.name = 'forgotten' AND last.changed > counter.value
)
SELECT count(*) FROM gone
