-- $1..$16 of each task, $17..$19 of each lane, $20 of each task: its number, or NULL. For tasks that are
-- neither found nor made, a second statement looks again: an enqueue of the same key was committed meanwhile.
WITH given AS MATERIALIZED (
  SELECT given.*, lanes.digest FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
    $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[],
    $14::text[], $15::text[], $16::text[], $20::bigint[]) WITH ORDINALITY
    given (lane_at, due, rank, logical_date, map_index, priority, lease_loss, attempt_runs, enqueued_at, ready_at,
      namespace, workflow, run, task, retry, payload, given_no, place)
  JOIN (SELECT at, sm.lane_digest(pool, slots, limits) AS digest
        FROM unnest($17::text[], $18::bigint[], $19::text[]) WITH ORDINALITY lane (pool, slots, limits, at) OFFSET 0) lanes
    ON lanes.at = given.lane_at
),
found AS MATERIALIZED (
  SELECT given.place, task.no FROM given CROSS JOIN LATERAL (
    SELECT no FROM sm.task WHERE namespace = given.namespace AND workflow = given.workflow AND run = given.run
      AND task = given.task AND map_index = given.map_index OFFSET 0) task
),
fresh AS MATERIALIZED (
  SELECT absent.*, coalesce(absent.given_no, nextval('sm.task_no')) AS no FROM (
    SELECT given.* FROM given WHERE place NOT IN (SELECT place FROM found) ORDER BY place
  ) absent
),
new_tasks AS (
  INSERT INTO sm.task (no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, lease_loss, attempt_runs,
    namespace, workflow, run, task, pool, limits, retry, payload)
  SELECT fresh.no, fresh.digest, fresh.rank, fresh.logical_date, fresh.map_index, fresh.priority, lane.slots,
    fresh.enqueued_at, fresh.lease_loss, fresh.attempt_runs, fresh.namespace, fresh.workflow, fresh.run, fresh.task,
    lane.pool, lane.limits, fresh.retry, fresh.payload
  FROM fresh JOIN unnest($17::text[], $18::bigint[], $19::text[]) WITH ORDINALITY lane (pool, slots, limits, at)
    ON lane.at = fresh.lane_at
  ORDER BY fresh.namespace, fresh.workflow, fresh.run, fresh.task, fresh.map_index, fresh.place
  ON CONFLICT (namespace, workflow, run, task, map_index) DO NOTHING
  RETURNING no
),
made AS MATERIALIZED (SELECT fresh.* FROM fresh WHERE (no IN (SELECT no FROM new_tasks)) IS TRUE),
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT digest, rank, logical_date, map_index, no, ready_at FROM made WHERE due IS NULL
),
new_idle AS (
  INSERT INTO sm.idle (no, state, lane, rank, logical_date, map_index, due, ready_at)
  SELECT no, 5, digest, rank, logical_date, map_index, due, ready_at FROM made WHERE due IS NOT NULL
),
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots, limits)
  SELECT sums.digest, sums.ready, sums.tasks, 0, 0, sums.ready, head[1], head[2], head[3], head[4], sums.due,
    sums.first, lane.pool, lane.slots, lane.limits
  FROM (SELECT lane_at, digest, count(*) FILTER (WHERE due IS NULL) AS ready, count(*) AS tasks, min(no) AS first, min(due) AS due,
          min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE due IS NULL) AS head
        FROM made GROUP BY lane_at, digest) sums
  JOIN unnest($17::text[], $18::bigint[], $19::text[]) WITH ORDINALITY lane (pool, slots, limits, at) ON lane.at = sums.lane_at
  ORDER BY sums.first
)
SELECT place, no, FALSE FROM found UNION ALL SELECT place, no, TRUE FROM made
