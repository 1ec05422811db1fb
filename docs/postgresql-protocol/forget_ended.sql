-- $1, $2 instants, $3 how many, $4 where the caller's last look ended. Rows that somebody else has locked are
-- passed over.
WITH old AS MATERIALIZED (
  SELECT idle.no FROM sm.idle
  WHERE idle.state >= 6 AND idle.ended_at >= $4::bigint AND idle.ended_at < $1::bigint
    AND (idle.ended_at < $2::bigint OR NOT EXISTS (SELECT FROM sm.sensor WHERE sensor.no = idle.no OFFSET 0))
    AND NOT EXISTS (SELECT FROM sm.event WHERE event.no = idle.no OFFSET 0)
    AND NOT EXISTS (SELECT FROM sm.event_inbox WHERE event_inbox.no = idle.no OFFSET 0)
    AND NOT EXISTS (SELECT FROM sm.sensor_inbox WHERE sensor_inbox.no = idle.no OFFSET 0)
  ORDER BY idle.ended_at, idle.no LIMIT $3::bigint FOR UPDATE OF idle SKIP LOCKED
),
gone AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM old)) RETURNING no),
tasks AS (DELETE FROM sm.task WHERE no = ANY (ARRAY(SELECT no FROM gone))),
beats AS (DELETE FROM sm.beat WHERE no = ANY (ARRAY(SELECT no FROM gone))),
sensors AS (DELETE FROM sm.sensor WHERE no = ANY (ARRAY(SELECT no FROM gone)) RETURNING no),
changes AS (INSERT INTO sm.sensor_inbox (no, kind) SELECT no, 2 FROM sensors)
SELECT count(*) FROM gone
