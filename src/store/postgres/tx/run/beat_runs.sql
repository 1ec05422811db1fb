-- Records heartbeats of open runs. A heartbeat never moves back. A run that another transaction has locked is
-- being written or closed. Its heartbeat is stored separately until take_run_beats.sql records it.
-- $1 to $3: digests of namespaces, ids and instants; no run twice.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) given (ns, id, at)
),
held AS MATERIALIZED (
  SELECT given.at, run.ns, run.id
  FROM given
  CROSS JOIN LATERAL (
    SELECT ns, id FROM sm.run
    WHERE run.ns = given.ns AND run.id = given.id AND num_nulls(run.stop) = 1
    FOR NO KEY UPDATE SKIP LOCKED
  ) run
),
kept AS (
  INSERT INTO sm.run_beat (ns, run, at)
  SELECT given.ns, given.id, given.at
  FROM given
  CROSS JOIN LATERAL (
    SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND num_nulls(run.stop) = 1 OFFSET 0
  ) run
  EXCEPT
  SELECT ns, id, at FROM held
),
-- Only the transaction that has locked a run touches the heartbeats stored for it.
earlier AS MATERIALIZED (
  SELECT beat.place
  FROM held
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM sm.run_beat
    WHERE run_beat.ns = held.ns AND run_beat.run = held.id AND run_beat.at <= held.at
    OFFSET 0
  ) beat
),
gone AS (DELETE FROM sm.run_beat WHERE ctid = ANY (ARRAY(SELECT place FROM earlier)))
UPDATE sm.run SET heartbeat = greatest(run.heartbeat, held.at)
FROM held
WHERE run.ns = held.ns AND run.id = held.id
