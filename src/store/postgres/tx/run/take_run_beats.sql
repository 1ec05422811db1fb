-- Records in their runs the heartbeats that beat_runs.sql stored separately, unless other transactions have
-- these runs locked. Deletes those of runs that are not open. Returns how many runs got any.
-- $1: how many runs.
WITH RECURSIVE
-- Each run once, however many heartbeats are stored for it. Heartbeats of runs that stay locked must not hide
-- the others: closing silent runs relies on this.
given AS (
  (SELECT ns, run FROM sm.run_beat ORDER BY ns, run LIMIT 1)
  UNION ALL
  SELECT next.ns, next.run
  FROM given
  CROSS JOIN LATERAL (
    SELECT ns, run FROM sm.run_beat WHERE (run_beat.ns, run_beat.run) > (given.ns, given.run)
    ORDER BY ns, run LIMIT 1
  ) next
),
-- Not `stop IS NULL`: the index of open runs does not find one by its id.
held AS MATERIALIZED (
  SELECT run.place
  FROM given
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM sm.run
    WHERE run.ns = given.ns AND run.id = given.run AND num_nulls(run.stop) = 1
    FOR NO KEY UPDATE SKIP LOCKED
  ) run
  LIMIT $1::bigint
),
-- A run that was changed since this statement began is not found by its ctid, and waits for the next call.
noted AS (
  UPDATE sm.run SET heartbeat = greatest(run.heartbeat, (
    SELECT max(run_beat.at) FROM sm.run_beat WHERE run_beat.ns = run.ns AND run_beat.run = run.id))
  WHERE ctid = ANY (ARRAY(SELECT place FROM held))
  RETURNING ns, id, heartbeat
),
-- Only the transaction that has locked a run touches the heartbeats stored for it. Several transactions may
-- delete those of a run that is not open.
old AS MATERIALIZED (
  SELECT beat.place
  FROM noted
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM sm.run_beat
    WHERE run_beat.ns = noted.ns AND run_beat.run = noted.id AND run_beat.at <= noted.heartbeat
    OFFSET 0
  ) beat
  UNION ALL
  SELECT beat.place
  FROM given
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM sm.run_beat
    WHERE run_beat.ns = given.ns AND run_beat.run = given.run AND NOT EXISTS (
      SELECT FROM sm.run
      WHERE run.ns = given.ns AND run.id = given.run AND num_nulls(run.stop) = 1
      OFFSET 0
    )
    FOR UPDATE SKIP LOCKED
  ) beat
),
gone AS (DELETE FROM sm.run_beat WHERE ctid = ANY (ARRAY(SELECT place FROM old)))
SELECT count(*) FROM noted
