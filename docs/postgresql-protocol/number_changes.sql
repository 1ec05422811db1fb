-- After pg_try_advisory_xact_lock. Moves at most $1 changes; the same for events.
WITH last AS MATERIALIZED (SELECT * FROM sm.numbers ORDER BY version DESC LIMIT 1),
gone AS (DELETE FROM sm.sensor_inbox WHERE id = ANY (ARRAY(SELECT id FROM sm.sensor_inbox ORDER BY id LIMIT $1::bigint)) RETURNING *),
placed AS MATERIALIZED (
  SELECT gone.*, last.sensor + row_number() OVER (ORDER BY gone.id) AS seq FROM gone CROSS JOIN last),
latest AS MATERIALIZED (SELECT DISTINCT ON (no) * FROM placed ORDER BY no, id DESC),
old AS (DELETE FROM sm.sensor_change WHERE no = ANY (ARRAY(SELECT no FROM latest)) RETURNING seq, no),
new AS (INSERT INTO sm.sensor_change (seq, no, waiting) SELECT seq, no, kind = 0 FROM latest WHERE kind <> 2),
old_numbers AS (DELETE FROM sm.numbers USING last WHERE numbers.version = last.version AND EXISTS (SELECT FROM gone)),
new_numbers AS (
  INSERT INTO sm.numbers (version, sensor, event, forgotten)
  SELECT last.version + 1, (SELECT max(seq) FROM placed), last.event,
    greatest(last.forgotten, (SELECT max(old.seq) FROM old JOIN latest USING (no) WHERE latest.kind = 2))
  FROM last WHERE EXISTS (SELECT FROM gone))
SELECT id, no, seq FROM placed
