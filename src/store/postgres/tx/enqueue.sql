-- Inserts tasks whose keys are new, and finds those whose keys exist. Returns the place of each, counted from
-- 1, its number, and whether it is new. A task without a row was inserted meanwhile by a transaction that
-- committed: look again.
-- $1 to $7: one array per column of the tasks, in the order of their keys by bytes, so that a transaction that
-- waits for a key holds no later one. $1: the place of a task's shape among the shapes. $3: its place in the
-- caller's order. $4: the tasks' numbers, or NULL to draw them in that order.
-- $8 to $18: what many tasks have in common, each combination once. $8: the place of a shape's lane among the
-- lanes. $19 to $22: the lanes, each once: pool, slots, limits as a JSON array, queue.
-- $23: 1 to insert nothing if a cap may hold for one of the lanes. A row without a place then reports this.
WITH
lanes AS MATERIALIZED (
  SELECT lane.*, sm._lane_digest(lane.pool, lane.slots, lane.limits, lane.queue) AS digest
  FROM unnest($19::text[], $20::bigint[], $21::text[], $22::text[])
    WITH ORDINALITY lane (pool, slots, limits, queue, at)
),
shapes AS MATERIALIZED (
  SELECT shape.*, coalesce(shape.due, shape.enqueued_at) AS ready_at, lanes.digest, lanes.slots, lanes.pool,
    lanes.limits, lanes.queue
  FROM unnest(
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
    $15::bigint[], $16::text[], $17::text[], $18::text[]
  ) WITH ORDINALITY shape (
    lane_at, due, rank, logical_date, priority, lease_loss, attempt_runs, enqueued_at, namespace, workflow,
    retry, at
  )
  JOIN lanes ON lanes.at = shape.lane_at
),
given AS MATERIALIZED (
  SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[]
  ) WITH ORDINALITY given (shape_at, map_index, nth, given_no, run, task, payload, place)
),
capped AS MATERIALIZED (
  SELECT CASE WHEN $23::bigint = 1 AND EXISTS (SELECT FROM sm.cap)
    THEN sm._is_capped(ARRAY(SELECT queue FROM lanes), ARRAY(SELECT limits FROM lanes)) ELSE FALSE END AS yes
),
found AS MATERIALIZED (
  SELECT given.place, task.no
  FROM given
  JOIN shapes ON shapes.at = given.shape_at
  CROSS JOIN LATERAL (
    SELECT no FROM sm.task
    WHERE task.namespace = shapes.namespace AND task.workflow = shapes.workflow AND task.run = given.run
      AND task.task = given.task AND task.map_index = given.map_index
    OFFSET 0
  ) task
),
-- One for each task, unless there is nothing to insert. Those of tasks that exist are not used.
drawn AS MATERIALIZED (
  SELECT ARRAY(SELECT nextval('sm.task_no') FROM generate_series(1, cardinality($1::bigint[]))) AS numbers
  WHERE $4::bigint[] IS NULL AND cardinality($1::bigint[]) > (SELECT count(*) FROM found)
    AND NOT (SELECT yes FROM capped)
),
fresh AS NOT MATERIALIZED (
  SELECT given.*, coalesce(given.given_no, (SELECT numbers FROM drawn)[given.nth]) AS no
  FROM given
  WHERE place NOT IN (SELECT place FROM found) AND NOT (SELECT yes FROM capped)
),
-- The key may belong to a task that was inserted after this statement began.
new_tasks AS (
  INSERT INTO sm.task (
    no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  )
  SELECT fresh.no, digest, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  FROM fresh
  JOIN shapes ON shapes.at = fresh.shape_at
  ORDER BY fresh.place
  ON CONFLICT (namespace, workflow, run, task, map_index) DO NOTHING
  RETURNING no
),
-- `IS TRUE` makes this a condition tested for each row, not a join.
made AS MATERIALIZED (
  SELECT fresh.place, fresh.no, fresh.map_index, digest, lane_at, rank, logical_date, due, ready_at
  FROM fresh
  JOIN shapes ON shapes.at = fresh.shape_at
  WHERE (fresh.no IN (SELECT no FROM new_tasks)) IS TRUE
),
-- In the order of its index, whose last page then takes most rows.
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT digest, rank, logical_date, map_index, no, ready_at FROM made WHERE due IS NULL
  ORDER BY digest, rank, logical_date, map_index, no
),
-- State 5: scheduled and not yet due.
new_idle AS (
  INSERT INTO sm.idle (no, state, lane, rank, logical_date, map_index, due, ready_at)
  SELECT no, 5, digest, rank, logical_date, map_index, due, ready_at FROM made WHERE due IS NOT NULL
),
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots,
    limits, queue
  )
  SELECT digest, ready, tasks, 0, 0, ready, head[1], head[2], head[3], head[4], due, first, pool, slots,
    limits, queue
  FROM (
    SELECT lane_at, count(*) FILTER (WHERE due IS NULL) AS ready, count(*) AS tasks, min(no) AS first,
      min(due) AS due, min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE due IS NULL) AS head
    FROM made
    GROUP BY lane_at
  ) sums
  JOIN lanes ON lanes.at = sums.lane_at
  ORDER BY first
)
SELECT place, no, FALSE FROM found
UNION ALL
SELECT place, no, TRUE FROM made
UNION ALL
SELECT NULL, NULL, NULL FROM capped WHERE yes
