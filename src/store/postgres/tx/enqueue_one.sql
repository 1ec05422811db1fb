-- Does what enqueue.sql does, for one task, with a plan a third as long. Returns its place, its number, and
-- whether it is new.
-- $1 to $15: the columns of the task. $16 to $19: its lane: pool, slots, limits as a JSON array, queue. $20: 1
-- to fail (22012) if the task is not new or may be capped, because its commit is sent along. $21: 1 to insert
-- nothing if a cap may hold for it. A row without a place then reports this.
WITH
found AS MATERIALIZED (
  SELECT no FROM sm.task
  WHERE namespace = $10::text AND workflow = $11::text AND run = $12::text AND task = $13::text
    AND map_index = $4::bigint
),
capped AS MATERIALIZED (
  SELECT CASE WHEN $21::bigint = 1 AND EXISTS (SELECT FROM sm.cap)
    THEN sm._is_capped(ARRAY[$19::text], ARRAY[$18::text]) ELSE FALSE END AS yes
),
-- The key may belong to a task that was inserted after this statement began.
made AS (
  INSERT INTO sm.task (
    no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  )
  SELECT nextval('sm.task_no'), sm._lane_digest($16::text, $17::bigint, $18::text, $19::text), $2::bigint, $3::bigint,
    $4::bigint, $5::bigint, $17::bigint, $8::bigint, $6::bigint, $7::bigint,
    $10::text, $11::text, $12::text, $13::text, $16::text, $18::text, $19::text, $14::text, $15::text
  WHERE NOT EXISTS (SELECT FROM found) AND NOT (SELECT yes FROM capped)
  ON CONFLICT (namespace, workflow, run, task, map_index) DO NOTHING
  RETURNING no, lane, rank, logical_date, map_index
),
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT lane, rank, logical_date, map_index, no, $9::bigint FROM made WHERE $1::bigint IS NULL
),
-- State 5: scheduled and not yet due.
new_idle AS (
  INSERT INTO sm.idle (no, state, lane, rank, logical_date, map_index, due, ready_at)
  SELECT no, 5, lane, rank, logical_date, map_index, $1::bigint, $9::bigint FROM made WHERE $1::bigint IS NOT NULL
),
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots,
    limits, queue
  )
  SELECT lane, (due IS NULL)::int, 1, 0, 0, (due IS NULL)::int, CASE WHEN due IS NULL THEN rank END,
    CASE WHEN due IS NULL THEN logical_date END, CASE WHEN due IS NULL THEN map_index END,
    CASE WHEN due IS NULL THEN no END, due, no, $16::text, $17::bigint, $18::text, $19::text
  FROM (SELECT made.*, $1::bigint AS due FROM made) made
)
SELECT 1::bigint, no, FALSE FROM found
UNION ALL
SELECT 1, no, TRUE FROM made
UNION ALL
SELECT NULL, NULL, NULL FROM capped WHERE yes
UNION ALL
SELECT NULL, NULL, FALSE FROM (SELECT count(*) AS new FROM made) counted
WHERE CASE WHEN $20::bigint = 0 THEN FALSE ELSE 1 / new IS NULL END
