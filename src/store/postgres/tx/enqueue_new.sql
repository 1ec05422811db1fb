-- Does what enqueue_one.sql does, by the same parameters, for a task that is expected to be new and is ready at
-- once, with a plan half as long. Its commit is sent along. So it fails if the task is not new or may be capped
-- (22012), or if another transaction has inserted its key meanwhile (23505). Returns its place, its number, and
-- that it is new. $1 is NULL, and $20 is 1.
WITH
made AS (
  INSERT INTO sm.task (
    no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  )
  SELECT nextval('sm.task_no'), sm._lane_digest($16::text, $17::bigint, $18::text, $19::text), $2::bigint, $3::bigint,
    $4::bigint, $5::bigint, $17::bigint, $8::bigint, $6::bigint, $7::bigint,
    $10::text, $11::text, $12::text, $13::text, $16::text, $18::text, $19::text, $14::text, $15::text
  WHERE NOT EXISTS (
      SELECT FROM sm.task
      WHERE namespace = $10::text AND workflow = $11::text AND run = $12::text AND task = $13::text
        AND map_index = $4::bigint
    )
    AND CASE WHEN $21::bigint = 1 AND EXISTS (SELECT FROM sm.cap)
      THEN NOT sm._is_capped(ARRAY[$19::text], ARRAY[$18::text]) ELSE TRUE END
  RETURNING no, lane
),
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT lane, $2::bigint, $3::bigint, $4::bigint, no, $9::bigint FROM made
),
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots, limits,
    queue
  )
  SELECT lane, 1, 1, 0, 0, 1, $2::bigint, $3::bigint, $4::bigint, no, $1::bigint, no, $16::text, $17::bigint, $18::text,
    $19::text
  FROM made
)
SELECT 1::bigint, min(no), 1 / count(*) = $20::bigint FROM made
