-- $1, $2 instants, $3 how many. Rows that somebody else has locked are passed over. The
-- task's row is locked with it: a host's foreign key may hold that one.
WITH old AS MATERIALIZED (
  SELECT idle.no FROM sm.idle JOIN sm.task ON task.no = idle.no
  WHERE idle.state >= 6 AND idle.ended_at < $1::bigint
    AND (idle.ended_at < $2::bigint OR NOT EXISTS (SELECT FROM sm.sensor WHERE sensor.no = idle.no))
    AND NOT EXISTS (SELECT FROM sm.event WHERE event.no = idle.no)
    AND NOT EXISTS (SELECT FROM sm.event_inbox WHERE event_inbox.no = idle.no)
    AND NOT EXISTS (SELECT FROM sm.sensor_inbox WHERE sensor_inbox.no = idle.no)
  ORDER BY idle.ended_at, idle.no LIMIT $3::bigint FOR UPDATE OF idle, task SKIP LOCKED
),
gone AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM old)) RETURNING no, lane),
tasks AS (DELETE FROM sm.task USING gone WHERE task.no = gone.no),
beats AS (DELETE FROM sm.beat WHERE no = ANY (ARRAY(SELECT no FROM gone))),
sensors AS (DELETE FROM sm.sensor WHERE no = ANY (ARRAY(SELECT no FROM gone)) RETURNING no),
changes AS (INSERT INTO sm.sensor_inbox (no, kind) SELECT no, 2 FROM sensors),
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases) SELECT lane, 0, -count(*), 0, 0 FROM gone GROUP BY lane
)
SELECT count(*) FROM gone
