-- Deletes tasks that ended in one state, with their sensors, earliest first, and returns how many. Rows locked
-- by other transactions are skipped. A task stays while the last change of its sensor waits for a number.
-- Heartbeats that were committed after their task was deleted are deleted too: those before the first task.
-- $1: delete those that ended before this instant; $2: the same for those that were sensors; $3: how many; $4:
-- the state.
WITH
old AS MATERIALIZED (
  SELECT idle.no FROM sm.idle
  WHERE idle.state >= 6 AND idle.state = $4::bigint AND idle.ended_at < $1::bigint
    AND (idle.ended_at < $2::bigint OR NOT EXISTS (
      SELECT FROM sm.sensor WHERE sensor.no = idle.no OFFSET 0))
    AND NOT EXISTS (SELECT FROM sm.sensor_inbox WHERE sensor_inbox.no = idle.no OFFSET 0)
  ORDER BY idle.ended_at, idle.no
  LIMIT $3::bigint
  FOR UPDATE OF idle SKIP LOCKED
),
gone AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM old)) RETURNING no),
tasks AS (DELETE FROM sm.task WHERE no = ANY (ARRAY(SELECT no FROM gone))),
beats AS (DELETE FROM sm.beat WHERE no = ANY (ARRAY(SELECT no FROM gone))),
notes AS (DELETE FROM sm.note WHERE no = ANY (ARRAY(SELECT no FROM gone))),
attempts AS (DELETE FROM sm.attempt WHERE no = ANY (ARRAY(SELECT no FROM gone))),
stray_beats AS (
  DELETE FROM sm.beat WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM sm.beat
    WHERE beat.no < coalesce((SELECT min(task.no) FROM sm.task), 9223372036854775807)
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED))
),
sensors AS (DELETE FROM sm.sensor WHERE no = ANY (ARRAY(SELECT no FROM gone)) RETURNING no),
changes AS (INSERT INTO sm.sensor_inbox (no, kind) SELECT no, 2 FROM sensors)
SELECT count(*) FROM gone
