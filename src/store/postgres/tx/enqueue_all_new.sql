-- Does what enqueue.sql does, by the same parameters, for tasks that are expected to be new and are ready at once.
-- It looks all keys up first and then only inserts, so it writes less. Its commit is sent along. So it fails if a
-- task is not new or may be capped (22012), or if another transaction has inserted its key meanwhile (23505).
-- Returns the numbers of the tasks, in the caller's order, in one row. $4 and all of $9 are NULL.
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
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::text[], $17::text[], $18::text[]
  ) WITH ORDINALITY shape (
    lane_at, due, rank, logical_date, priority, lease_loss, attempt_runs, enqueued_at, namespace, workflow, retry, at
  )
  JOIN lanes ON lanes.at = shape.lane_at
),
given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::text[], $6::text[], $7::text[])
    WITH ORDINALITY given (shape_at, map_index, nth, run, task, payload, place)
),
found AS MATERIALIZED (
  SELECT task.no
  FROM given
  JOIN shapes ON shapes.at = given.shape_at
  CROSS JOIN LATERAL (
    SELECT no FROM sm.task
    WHERE task.namespace = shapes.namespace AND task.workflow = shapes.workflow AND task.run = given.run
      AND task.task = given.task AND task.map_index = given.map_index
    OFFSET 0
  ) task
),
-- Before anything is inserted. An insert would wait for an open change of a task that exists.
checked AS MATERIALIZED (
  SELECT 1 / ((SELECT count(*) FROM found) = 0 AND CASE WHEN $23::bigint = 1 AND EXISTS (SELECT FROM sm.cap)
    THEN NOT sm._is_capped(ARRAY(SELECT queue FROM lanes), ARRAY(SELECT limits FROM lanes)) ELSE TRUE END)::int AS passed
),
drawn AS MATERIALIZED (
  SELECT ARRAY(SELECT nextval('sm.task_no') FROM generate_series(1, cardinality($1::bigint[]))) AS numbers
  FROM checked WHERE passed = 1 AND $4::bigint[] IS NULL
),
made AS MATERIALIZED (
  SELECT (SELECT numbers FROM drawn)[given.nth] AS no, given.shape_at, given.map_index, shapes.digest, shapes.rank,
    shapes.logical_date, shapes.ready_at
  FROM given JOIN shapes ON shapes.at = given.shape_at
),
new_tasks AS (
  INSERT INTO sm.task (
    no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  )
  SELECT (SELECT numbers FROM drawn)[given.nth], digest, rank, logical_date, map_index, priority, slots, enqueued_at,
    lease_loss, attempt_runs, namespace, workflow, run, task, pool, limits, queue, retry, payload
  FROM given JOIN shapes ON shapes.at = given.shape_at
  ORDER BY given.place
),
-- In the order of its index, whose last page then takes most rows.
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT digest, rank, logical_date, map_index, no, ready_at FROM made
  ORDER BY digest, rank, logical_date, map_index, no
),
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, first, pool, lane_slots, limits, queue
  )
  SELECT digest, tasks, tasks, 0, 0, tasks, head[1], head[2], head[3], head[4], first, pool, slots, limits, queue
  FROM (
    SELECT lane_at, sum(tasks)::bigint AS tasks, min(first) AS first,
      min(ARRAY[rank, logical_date, map_index, first]) AS head
    -- Few, unless each task has an index of its own.
    FROM (SELECT shape_at, map_index, count(*) AS tasks, min(no) AS first FROM made GROUP BY shape_at, map_index) likes
    JOIN shapes ON shapes.at = likes.shape_at
    GROUP BY lane_at
  ) sums
  JOIN lanes ON lanes.at = sums.lane_at
  ORDER BY first
)
SELECT numbers FROM drawn
