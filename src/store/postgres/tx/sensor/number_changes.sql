-- Assigns numbers to the sensor changes and feed events in the inboxes, in the order in which they were
-- recorded. Does nothing unless the transaction took the advisory lock of numbers in an earlier statement: this
-- statement's snapshot must be newer than the last holder's commit. Returns the tasks and the numbers of the
-- changes, in their order, and how many events got one.
-- $1: the most of each.
WITH
last AS MATERIALIZED (
  SELECT * FROM sm.numbers WHERE current_setting('stationmaster.numbers', true) = 'true'
  ORDER BY version DESC LIMIT 1
),
changes AS (
  DELETE FROM sm.sensor_inbox
  WHERE id = ANY (ARRAY(
    SELECT id FROM sm.sensor_inbox WHERE EXISTS (SELECT FROM last) ORDER BY id LIMIT $1::bigint))
  RETURNING *
),
ends AS (
  DELETE FROM sm.feed_inbox
  WHERE id = ANY (ARRAY(
    SELECT id FROM sm.feed_inbox WHERE EXISTS (SELECT FROM last) ORDER BY id LIMIT $1::bigint))
  RETURNING *
),
-- A deletion (kind 2) gets no number, because no one follows it.
placed AS MATERIALIZED (
  SELECT changes.*, last.sensor + count(*) FILTER (WHERE changes.kind <> 2) OVER (ORDER BY changes.id) AS seq
  FROM changes CROSS JOIN last
),
latest AS MATERIALIZED (SELECT DISTINCT ON (no) no, kind, seq FROM placed ORDER BY no, id DESC),
old AS (
  DELETE FROM sm.sensor_change WHERE no = ANY (ARRAY(SELECT no FROM latest)) RETURNING no, seq
),
new AS (
  INSERT INTO sm.sensor_change (seq, no, waiting) SELECT seq, no, kind = 0 FROM latest WHERE kind <> 2
),
told AS (
  INSERT INTO sm.feed (seq, no, attempt, at, state, reason, map_index, namespace, workflow, run, task, value, message)
  SELECT last.feed + row_number() OVER (ORDER BY ends.id), ends.no, ends.attempt, ends.at, ends.state, ends.reason,
    ends.map_index, ends.namespace, ends.workflow, ends.run, ends.task, ends.value, ends.message
  FROM ends CROSS JOIN last
),
moved AS MATERIALIZED (
  SELECT (SELECT count(*) FROM placed) AS changes, (SELECT max(seq) FROM placed) AS sensor,
    (SELECT count(*) FROM ends) AS ends,
    (SELECT max(old.seq) FROM old WHERE (old.no IN (SELECT no FROM latest WHERE kind = 2)) IS TRUE) AS forgotten
),
old_numbers AS (
  DELETE FROM sm.numbers
  WHERE version = (SELECT version FROM last) AND (SELECT changes + ends FROM moved) > 0
),
new_numbers AS (
  INSERT INTO sm.numbers (version, sensor, forgotten, feed)
  SELECT last.version + 1, coalesce(moved.sensor, last.sensor),
    greatest(last.forgotten, moved.forgotten), last.feed + moved.ends
  FROM last CROSS JOIN moved
  WHERE moved.changes + moved.ends > 0
)
SELECT coalesce(array_agg(placed.no ORDER BY placed.id), '{}'),
  coalesce(array_agg(placed.seq ORDER BY placed.id), '{}'), (SELECT ends FROM moved)
FROM placed
