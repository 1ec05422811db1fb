-- Does what enqueue_one.sql does for a task that is expected to be new and is ready at once, with a plan half as
-- long. Its commit is sent along, so it fails (22012) if the task is not new or may be capped. Returns its place,
-- its number, and that it is new.
-- $1 to $13: the columns of the task. $14 to $17: its lane: pool, slots, limits as a JSON array, queue. $18: 1 if
-- a cap may hold for it.
WITH
-- The key may belong to a task that was inserted after this statement began.
made AS (
  INSERT INTO sm.task (
    no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  )
  SELECT nextval('sm.task_no'), sm._lane_digest($14::text, $15::bigint, $16::text, $17::text), $1::bigint, $2::bigint,
    $3::bigint, $4::bigint, $15::bigint, $7::bigint, $5::bigint, $6::bigint,
    $8::text, $9::text, $10::text, $11::text, $14::text, $16::text, $17::text, $12::text, $13::text
  WHERE NOT EXISTS (
      SELECT FROM sm.task
      WHERE namespace = $8::text AND workflow = $9::text AND run = $10::text AND task = $11::text
        AND map_index = $3::bigint
    )
    AND CASE WHEN $18::bigint = 1 AND EXISTS (SELECT FROM sm.cap)
      THEN NOT sm._is_capped(ARRAY[$17::text], ARRAY[$16::text]) ELSE TRUE END
  ON CONFLICT (namespace, workflow, run, task, map_index) DO NOTHING
  RETURNING no, lane
),
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT lane, $1::bigint, $2::bigint, $3::bigint, no, $7::bigint FROM made
),
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, first, pool, lane_slots, limits,
    queue
  )
  SELECT lane, 1, 1, 0, 0, 1, $1::bigint, $2::bigint, $3::bigint, no, no, $14::text, $15::bigint, $16::text, $17::text
  FROM made
)
SELECT 1::bigint, min(no), 1 / count(*) = 1 FROM made
