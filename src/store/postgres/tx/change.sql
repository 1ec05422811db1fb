-- Replaces the needs of tasks, each if it has this epoch, waits in one of these states and keeps no slots. As
-- in a move, the task's row is deleted and inserted again. So a transaction that waited for the old row finds
-- nothing and looks again. The old and the new lanes are updated through deltas. Returns the places of the
-- changes that were made, counted from 1.
-- $1 to $15, of each change: number, epoch, states as bits, new state, due, since when it waits, rank, logical
-- date, map index, priority, lease loss, whether attempts are recorded, retry, payload, the place of its lane
-- among the lanes.
-- $16 to $19: the lanes, each once: pool, slots, limits as a JSON array, queue.
WITH
lanes AS MATERIALIZED (
  SELECT lane.*, sm._lane_digest(lane.pool, lane.slots, lane.limits, lane.queue) AS digest
  FROM unnest($16::text[], $17::bigint[], $18::text[], $19::text[])
    WITH ORDINALITY lane (pool, slots, limits, queue, at)
),
given AS MATERIALIZED (
  SELECT given.*, lanes.digest, lanes.slots, lanes.pool, lanes.limits, lanes.queue
  FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::bigint[]
  ) WITH ORDINALITY given (
    no, epoch, allowed, state, due, ready_at, rank, logical_date, map_index, priority, lease_loss, attempt_runs,
    retry, payload, lane_at, place
  )
  JOIN lanes ON lanes.at = given.lane_at
),
sorted AS MATERIALIZED (
  SELECT no, epoch, bit_or(allowed) AS allowed FROM given GROUP BY no, epoch ORDER BY no
),
-- States 3 and 5.
held_idle AS MATERIALIZED (
  SELECT idle.no
  FROM sorted
  CROSS JOIN LATERAL (
    SELECT no FROM sm.idle
    WHERE idle.no = sorted.no AND idle.epoch = sorted.epoch AND idle.state IN (3, 5)
      AND (sorted.allowed >> idle.state::int) & 1 = 1 AND idle.slots IS NULL
    FOR UPDATE
  ) idle
),
idled AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM held_idle)) RETURNING idle.*),
-- State 0. A row of ready is never updated, so its ctid is as good as its key.
held_ready AS MATERIALIZED (
  SELECT ready.at
  FROM sorted
  CROSS JOIN LATERAL (
    SELECT lane, rank, logical_date, map_index FROM sm.task WHERE task.no = sorted.no OFFSET 0
  ) task
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = sorted.no AND ready.epoch = sorted.epoch
    FOR UPDATE
  ) ready
  WHERE sorted.allowed & 1 = 1
),
readied AS (DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM held_ready)) RETURNING ready.*),
was AS MATERIALIZED (
  SELECT no, epoch, lane, state, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at, finished,
    message, value
  FROM idled
  UNION ALL
  SELECT no, epoch, lane, 0, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at, finished,
    message, value
  FROM readied
),
-- Of several changes of one task, the first one that its state allows counts.
hit AS MATERIALIZED (
  SELECT DISTINCT ON (was.no)
    given.place, was.no, was.epoch, was.lane AS left_lane, was.state AS was, was.attempt, was.forgiven, was.lost,
    was.queued_at, was.first_started_at, was.started_at, was.ended_at, was.finished, was.message, was.value,
    given.digest AS lane, given.slots, given.pool, given.limits, given.queue, given.state, given.due, given.ready_at,
    given.rank, given.logical_date, given.map_index, given.priority, given.lease_loss, given.attempt_runs,
    given.retry, given.payload
  FROM was
  JOIN given ON given.no = was.no AND given.epoch = was.epoch AND (given.allowed >> was.state::int) & 1 = 1
  ORDER BY was.no, given.place
),
changed AS (
  UPDATE sm.task SET lane = hit.lane, rank = hit.rank, logical_date = hit.logical_date, priority = hit.priority,
    slots = hit.slots, lease_loss = hit.lease_loss, attempt_runs = hit.attempt_runs, pool = hit.pool,
    limits = hit.limits, queue = hit.queue, retry = hit.retry, payload = hit.payload
  FROM hit
  WHERE task.no = hit.no
),
to_ready AS (
  INSERT INTO sm.ready (
    lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  )
  SELECT lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  FROM hit
  WHERE state = 0
),
to_idle AS (
  INSERT INTO sm.idle (
    no, state, epoch, lane, rank, logical_date, map_index, due, ready_at, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  )
  SELECT no, state, epoch, lane, rank, logical_date, map_index, due, ready_at, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  FROM hit
  WHERE state <> 0
),
-- The lane that a task enters may be new, so the delta contains its needs. Its number is drawn from the
-- sequence. The task's own number may be that of the lane that it left, if the task had created that lane.
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots,
    limits, queue
  )
  SELECT sums.lane, sums.ready, sums.tasks, 0, 0, sums.came, sums.head[1], sums.head[2], sums.head[3], sums.head[4],
    sums.due, CASE WHEN sums.pool IS NOT NULL THEN nextval('sm.task_no') END, sums.pool, sums.lane_slots,
    sums.limits, sums.queue
  FROM (
    SELECT lane, sum(ready)::bigint AS ready, sum(tasks)::bigint AS tasks, count(*) FILTER (WHERE came) AS came,
      min(due) AS due, min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE came) AS head,
      min(pool) AS pool, min(slots) AS lane_slots, min(limits) AS limits, min(queue) AS queue
    FROM (
      SELECT left_lane AS lane, CASE WHEN was = 0 THEN -1 ELSE 0 END AS ready, -1 AS tasks, FALSE AS came,
        NULL::bigint AS due, NULL::bigint AS rank, NULL::bigint AS logical_date, NULL::bigint AS map_index, no,
        NULL AS pool, NULL::bigint AS slots, NULL AS limits, NULL AS queue
      FROM hit
      UNION ALL
      SELECT lane, CASE WHEN state = 0 THEN 1 ELSE 0 END, 1, state = 0, due, rank, logical_date, map_index, no,
        CASE WHEN lane <> left_lane THEN pool END, CASE WHEN lane <> left_lane THEN slots END,
        CASE WHEN lane <> left_lane THEN limits END, CASE WHEN lane <> left_lane THEN queue END
      FROM hit
    ) parts
    GROUP BY lane
  ) sums
  WHERE sums.ready <> 0 OR sums.tasks <> 0 OR sums.came > 0 OR sums.due IS NOT NULL OR sums.pool IS NOT NULL
)
SELECT place FROM hit
