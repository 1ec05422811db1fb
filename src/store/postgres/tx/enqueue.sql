-- Inserts tasks whose keys are new, and finds those whose keys exist. Returns the place of each, counted from
-- 1, its number, and whether it is new. A task without a row was inserted meanwhile by a transaction that
-- committed: look again.
-- $1 to $16: one array per column of the tasks; $1 the place of a task's lane among the lanes. $17 to $19: the
-- lanes, each once: pool, slots, limits as a JSON array. $20: the tasks' numbers, or NULL for the next ones.
-- $21: the place of each among them in the order of keys, by bytes. $22: the queues of the lanes. $23: 1 to
-- insert nothing if a cap may hold for one of the lanes. A row without a place then reports this.
WITH
lanes AS MATERIALIZED (
  SELECT lane.*, sm._lane_digest(lane.pool, lane.slots, lane.limits, lane.queue) AS digest
  FROM unnest($17::text[], $18::bigint[], $19::text[], $22::text[])
    WITH ORDINALITY lane (pool, slots, limits, queue, at)
),
given AS MATERIALIZED (
  SELECT given.*, lanes.digest, lanes.slots, lanes.pool, lanes.limits, lanes.queue
  FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::text[], $16::text[], $20::bigint[], $21::bigint[]
  ) WITH ORDINALITY given (
    lane_at, due, rank, logical_date, map_index, priority, lease_loss, attempt_runs, enqueued_at, ready_at,
    namespace, workflow, run, task, retry, payload, given_no, nth_key, place
  )
  JOIN lanes ON lanes.at = given.lane_at
),
capped AS MATERIALIZED (
  SELECT CASE WHEN $23::bigint = 1 AND EXISTS (SELECT FROM sm.cap)
    THEN sm._is_capped(ARRAY(SELECT queue FROM lanes), ARRAY(SELECT limits FROM lanes)) ELSE FALSE END AS yes
),
found AS MATERIALIZED (
  SELECT given.place, task.no
  FROM given
  CROSS JOIN LATERAL (
    SELECT no FROM sm.task
    WHERE task.namespace = given.namespace AND task.workflow = given.workflow AND task.run = given.run
      AND task.task = given.task AND task.map_index = given.map_index
    OFFSET 0
  ) task
),
-- Numbers rise with the places.
fresh AS MATERIALIZED (
  SELECT absent.*, coalesce(absent.given_no, nextval('sm.task_no')) AS no
  FROM (SELECT * FROM given WHERE place NOT IN (SELECT place FROM found) AND NOT (SELECT yes FROM capped) ORDER BY place) absent
),
-- Inserted in the order of keys, as by every other call, so that a transaction that waits for a key holds no
-- later one. The key may belong to a task that was inserted after this statement began.
new_tasks AS (
  INSERT INTO sm.task (
    no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  )
  SELECT no, digest, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, queue, retry, payload
  FROM fresh
  ORDER BY nth_key
  ON CONFLICT (namespace, workflow, run, task, map_index) DO NOTHING
  RETURNING no
),
-- `IS TRUE` makes this a condition tested for each row, not a join.
made AS MATERIALIZED (SELECT * FROM fresh WHERE (no IN (SELECT no FROM new_tasks)) IS TRUE),
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT digest, rank, logical_date, map_index, no, ready_at FROM made WHERE due IS NULL
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
    SELECT digest, count(*) FILTER (WHERE due IS NULL) AS ready, count(*) AS tasks, min(no) AS first,
      min(due) AS due, min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE due IS NULL) AS head,
      min(pool) AS pool, min(slots) AS slots, min(limits) AS limits, min(queue) AS queue
    FROM made
    GROUP BY digest
  ) sums
  ORDER BY first
)
SELECT place, no, FALSE FROM found
UNION ALL
SELECT place, no, TRUE FROM made
UNION ALL
SELECT NULL, NULL, NULL FROM capped WHERE yes
