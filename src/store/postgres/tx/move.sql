-- Moves tasks, each if it still has this epoch and is in one of these states. The first transaction to lock a
-- task's row moves it. The row is then gone for the others, at every isolation level. What the task held is
-- given back through deltas, one per lane, computed from the deleted rows. Returns the places of the moves that
-- were made, counted from 1, and whether the feed reports any of them.
-- $1 to $14, of each move: number, epoch, states as bits, new state, due, 1 if it may keep its slots, attempts
-- to forgive, leases lost or NULL, ended at or NULL, the state that it finished in or NULL, message, value,
-- when it happens if it has no end, why a sensor ended or NULL.
-- If the tasks may be in several tables, the call must have locked them before. This statement locks the rows
-- of each table in order, one table after the other.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::bigint[], $14::bigint[]
  ) WITH ORDINALITY given (
    no, epoch, allowed, state, due, keeps, forgive, lost, ended_at, finished, message, value, at, reason, place
  )
),
sorted AS MATERIALIZED (
  SELECT no, epoch, bit_or(allowed) AS allowed FROM given GROUP BY no, epoch ORDER BY no
),
-- States 1 and 2.
held_leases AS MATERIALIZED (
  SELECT lease.no
  FROM sorted
  CROSS JOIN LATERAL (
    SELECT no FROM sm.lease
    WHERE lease.no = sorted.no AND lease.epoch = sorted.epoch
      AND (sorted.allowed >> (1 + lease.started)::int) & 1 = 1
    FOR UPDATE
  ) lease
  WHERE sorted.allowed & 6 <> 0
),
leased AS (DELETE FROM sm.lease WHERE no = ANY (ARRAY(SELECT no FROM held_leases)) RETURNING lease.*),
held_idle AS MATERIALIZED (
  SELECT idle.no
  FROM sorted
  CROSS JOIN LATERAL (
    SELECT no FROM sm.idle
    WHERE idle.no = sorted.no AND idle.epoch = sorted.epoch AND (sorted.allowed >> idle.state::int) & 1 = 1
    FOR UPDATE
  ) idle
  WHERE sorted.allowed & ~7 <> 0
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
  SELECT no, epoch, lane, 1 + started AS state, slots AS held, 1 AS leases, ready_at, attempt, forgiven, lost,
    queued_at, first_started_at, started_at, ended_at, holder
  FROM leased
  UNION ALL
  SELECT no, epoch, lane, state, coalesce(slots, 0), 0, ready_at, attempt, forgiven, lost,
    queued_at, first_started_at, started_at, ended_at, NULL
  FROM idled
  UNION ALL
  SELECT no, epoch, lane, 0, 0, 0, ready_at, attempt, forgiven, lost,
    queued_at, first_started_at, started_at, ended_at, NULL
  FROM readied
),
-- Of several moves of one task, the first one that its state allows counts. A ready task that keeps its slots
-- is in idle, like a task that waits for an instant.
hit AS MATERIALIZED (
  SELECT DISTINCT ON (was.no)
    given.place, was.no, was.epoch, was.lane, was.state AS was,
    CASE WHEN given.state = 0 AND given.keeps = 1 AND was.held > 0 THEN 5 ELSE given.state END AS state, given.due,
    was.leases, was.held * given.keeps AS kept, was.held,
    coalesce(greatest(given.due, given.ended_at), was.ready_at) AS ready_at, was.attempt,
    nullif(least(coalesce(was.forgiven, 0) + given.forgive, 4294967295), 0) AS forgiven,
    nullif(coalesce(given.lost, was.lost), 0) AS lost, was.queued_at, was.first_started_at, was.started_at,
    coalesce(given.ended_at, was.ended_at) AS ended_at, given.finished, given.message, given.value,
    given.reason,
    was.state >= 6 AND given.state < 6 AS again, was.holder,
    coalesce(given.ended_at, given.at, was.ready_at) AS happened_at,
    was.state IN (1, 2) AND given.state IN (0, 3, 5, 7, 9) OR was.state = 4 AND given.state IN (3, 7, 9) AS has_failed,
    was.state IN (1, 2, 4) AND given.state <> 4 AS has_ended
  FROM was
  JOIN given ON given.no = was.no AND given.epoch = was.epoch AND (given.allowed >> was.state::int) & 1 = 1
  ORDER BY was.no, given.place
),
-- Adds their place in admission and their needs, for the rows that need them. Joined once and only by the
-- index: joining two parts that the server guesses to be short may be quadratic.
placed AS MATERIALIZED (
  SELECT hit.*, task.rank, task.logical_date, task.map_index, task.pool, task.slots, task.limits, task.queue
  FROM hit
  LEFT JOIN LATERAL (
    SELECT rank, logical_date, map_index, pool, slots, limits, queue FROM sm.task
    WHERE task.no = hit.no AND (hit.due IS NOT NULL OR hit.state IN (0, 5) OR hit.again)
    OFFSET 0
  ) task ON true
),
to_ready AS (
  INSERT INTO sm.ready (
    lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  )
  SELECT lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  FROM placed
  WHERE state = 0
),
to_idle AS (
  INSERT INTO sm.idle (
    no, state, epoch, lane, rank, logical_date, map_index, due, slots, ready_at, attempt, forgiven, lost,
    queued_at, first_started_at, started_at, ended_at, finished, message, value
  )
  SELECT no, state, epoch, lane,
    CASE WHEN due IS NOT NULL OR state = 5 THEN rank END, CASE WHEN due IS NOT NULL OR state = 5 THEN logical_date END,
    CASE WHEN due IS NOT NULL OR state = 5 THEN map_index END, due, nullif(kept, 0), ready_at, attempt, forgiven, lost,
    queued_at, first_started_at, started_at, ended_at, finished, message, value
  FROM placed
  WHERE state <> 0
),
-- Keeps attempts that did not succeed, or none, or all, as the task says, of the latest 16 grants. For each
-- epoch the first is kept. A text is not cut in the middle of an escape for one character.
past AS MATERIALIZED (
  SELECT hit.*, task.queue
  FROM hit
  CROSS JOIN LATERAL (SELECT queue, attempt_runs FROM sm.task WHERE task.no = hit.no OFFSET 0) task
  WHERE hit.has_ended AND CASE WHEN hit.has_failed THEN task.attempt_runs & 16 = 0 ELSE task.attempt_runs & 8 <> 0 END
),
kept_attempts AS (
  INSERT INTO sm.attempt (
    no, epoch, attempt, queued_at, started_at, ended_at, state, by_holder, holder, queue, message
  )
  SELECT no, epoch, attempt, queued_at, CASE WHEN was <> 1 THEN started_at END,
    greatest(happened_at, queued_at, CASE WHEN was <> 1 THEN started_at END), CASE state WHEN 5 THEN 0 ELSE state END,
    CASE WHEN finished IS NULL THEN 0 ELSE 1 END, holder, queue,
    CASE WHEN state NOT IN (0, 5) OR finished IS NULL THEN rtrim(left(message, 1000), chr(26)) END
  FROM past
  ON CONFLICT (no, epoch) DO NOTHING
),
old_attempts AS (
  DELETE FROM sm.attempt WHERE ctid = ANY (ARRAY(
    SELECT old.at
    FROM past
    CROSS JOIN LATERAL (
      SELECT ctid AS at FROM sm.attempt WHERE attempt.no = past.no AND attempt.epoch <= past.epoch - 16 OFFSET 0
    ) old))
),
-- The events for the feed.
told AS (
  INSERT INTO sm.feed_inbox (no, attempt, at, state, reason, map_index, namespace, workflow, run, task, value, message)
  SELECT hit.no, hit.attempt, hit.happened_at, CASE hit.state WHEN 5 THEN 0 ELSE hit.state END, hit.reason,
    task.map_index, task.namespace, task.workflow, task.run, task.task, hit.value, hit.message
  FROM hit
  CROSS JOIN LATERAL (
    SELECT * FROM sm.task
    WHERE task.no = hit.no AND task.attempt_runs & CASE WHEN hit.state >= 6 THEN 2 ELSE 4 END <> 0
    OFFSET 0
  ) task
  WHERE hit.state >= 6 OR hit.was = 4 AND hit.state IN (0, 3, 5)
  ORDER BY hit.place
  RETURNING 1
),
-- A task that had ended counts again. Its lane may have been deleted, so the delta contains the needs and a new
-- number. The task's own number may be that of a lane which it created and then left by a change.
appended AS (
  INSERT INTO sm.delta (
    lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots,
    limits, queue
  )
  SELECT sums.lane, sums.came - sums.went, sums.begun - sums.ended, sums.slots, sums.leases, sums.came,
    sums.head[1], sums.head[2], sums.head[3], sums.head[4], sums.due,
    CASE WHEN sums.pool IS NOT NULL THEN nextval('sm.task_no') END, sums.pool, sums.lane_slots,
    sums.limits, sums.queue
  FROM (
    SELECT lane,
      count(*) FILTER (WHERE state = 0) AS came, count(*) FILTER (WHERE was = 0) AS went,
      count(*) FILTER (WHERE was >= 6) AS begun, count(*) FILTER (WHERE state >= 6) AS ended,
      sum(held - kept)::bigint AS slots, sum(leases)::bigint AS leases, min(due) AS due,
      min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE state = 0) AS head,
      min(pool) FILTER (WHERE again) AS pool,
      min(slots) FILTER (WHERE again) AS lane_slots, min(limits) FILTER (WHERE again) AS limits,
      min(queue) FILTER (WHERE again) AS queue
    FROM placed
    GROUP BY lane
  ) sums
  WHERE sums.came > 0 OR sums.went > 0 OR sums.begun <> sums.ended OR sums.slots <> 0 OR sums.leases <> 0
    OR sums.due IS NOT NULL OR sums.pool IS NOT NULL
)
SELECT place, EXISTS (SELECT FROM told) AS is_fed FROM hit
