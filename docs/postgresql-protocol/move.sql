-- $1..$12 of each move; allowed is the one state in which the caller read the task, as a bit. Of several
-- moves of one task the first counts. More than one table only after lock_tasks: here each table's rows are
-- locked in order, one table after the other.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[])
  WITH ORDINALITY given (no, epoch, allowed, state, due, keeps, forgive, lost, ended_at, finished, message, value, place)
),
sorted AS MATERIALIZED (SELECT given.no, given.epoch, bit_or(given.allowed) AS allowed FROM given GROUP BY given.no, given.epoch ORDER BY given.no),
-- Whoever locks the row first moves the task: the row is gone for the next one, at every isolation level.
held_leases AS MATERIALIZED (
  SELECT lease.no FROM sorted CROSS JOIN LATERAL (
    SELECT no FROM sm.lease WHERE lease.no = sorted.no AND lease.epoch = sorted.epoch
      AND (sorted.allowed >> (1 + lease.started)::int) & 1 = 1 FOR UPDATE) lease
  WHERE sorted.allowed & 6 <> 0
),
leased AS (DELETE FROM sm.lease WHERE no = ANY (ARRAY(SELECT no FROM held_leases)) RETURNING lease.*),
held_idle AS MATERIALIZED (
  SELECT idle.no FROM sorted CROSS JOIN LATERAL (
    SELECT no FROM sm.idle WHERE idle.no = sorted.no AND idle.epoch = sorted.epoch
      AND (sorted.allowed >> idle.state::int) & 1 = 1 FOR UPDATE) idle
  WHERE sorted.allowed & ~7 <> 0
),
idled AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM held_idle)) RETURNING idle.*),
-- A row of ready is never updated, so its ctid is as good as its key.
held_ready AS MATERIALIZED (
  SELECT ready.at FROM sorted
  CROSS JOIN LATERAL (SELECT lane, rank, logical_date, map_index FROM sm.task WHERE task.no = sorted.no OFFSET 0) task
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = sorted.no AND ready.epoch = sorted.epoch FOR UPDATE) ready
  WHERE sorted.allowed & 1 = 1
),
readied AS (DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM held_ready)) RETURNING ready.*),
was AS MATERIALIZED (
  SELECT no, epoch, lane, 1 + started AS state, slots AS held, 1 AS leases, ready_at, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at FROM leased
  UNION ALL
  SELECT no, epoch, lane, state, coalesce(slots, 0), 0, ready_at, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at FROM idled
  UNION ALL
  SELECT no, epoch, lane, 0, 0, 0, ready_at, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at FROM readied
),
hit AS MATERIALIZED (
  SELECT DISTINCT ON (was.no) given.place, given.no, was.epoch, was.lane, was.state AS was, given.state, given.due, given.keeps, was.held, was.leases,
    coalesce(greatest(given.due, given.ended_at), was.ready_at) AS ready_at, was.attempt,
    nullif(least(coalesce(was.forgiven, 0) + given.forgive, 4294967295), 0) AS forgiven, nullif(coalesce(given.lost, was.lost), 0) AS lost,
    was.queued_at, was.first_started_at, was.started_at, coalesce(given.ended_at, was.ended_at) AS ended_at,
    given.finished, given.message, given.value
  FROM was JOIN given ON given.no = was.no AND given.epoch = was.epoch AND (given.allowed >> was.state::int) & 1 = 1
  ORDER BY was.no, given.place
),
placed AS MATERIALIZED (
  SELECT hit.*, task.rank, task.logical_date, task.map_index, task.pool, task.slots, task.limits
  FROM hit CROSS JOIN LATERAL (
    SELECT rank, logical_date, map_index, pool, slots, limits FROM sm.task WHERE task.no = hit.no OFFSET 0) task
  WHERE hit.due IS NOT NULL OR hit.state = 0 OR (hit.was >= 6 AND hit.state < 6)
),
to_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value)
  SELECT lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value FROM placed WHERE state = 0
),
to_idle AS (
  INSERT INTO sm.idle (no, state, epoch, lane, rank, logical_date, map_index, due, slots, ready_at, attempt, forgiven, lost,
    queued_at, first_started_at, started_at, ended_at, finished, message, value)
  SELECT hit.no, hit.state, hit.epoch, hit.lane, placed.rank, placed.logical_date, placed.map_index, hit.due,
    nullif(hit.held * hit.keeps, 0), hit.ready_at, hit.attempt, hit.forgiven, hit.lost, hit.queued_at, hit.first_started_at,
    hit.started_at, hit.ended_at, hit.finished, hit.message, hit.value
  FROM hit LEFT JOIN placed USING (no) WHERE hit.state <> 0
),
-- A task that had ended counts again: its lane may be gone, so the delta names the needs.
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no, due, first, pool, lane_slots, limits)
  SELECT sums.lane, sums.came - sums.went, sums.tasks, sums.slots, sums.leases, sums.came, sums.head[1], sums.head[2], sums.head[3],
    sums.head[4], sums.due, sums.first, sums.pool, sums.lane_slots, sums.limits
  FROM (
    SELECT hit.lane, count(*) FILTER (WHERE hit.state = 0) AS came, count(*) FILTER (WHERE hit.was = 0) AS went,
      (count(*) FILTER (WHERE hit.was >= 6)) - (count(*) FILTER (WHERE hit.state >= 6)) AS tasks,
      sum(hit.held * (1 - hit.keeps))::bigint AS slots, sum(hit.leases)::bigint AS leases, min(hit.due) AS due,
      min(ARRAY[placed.rank, placed.logical_date, placed.map_index, placed.no]) FILTER (WHERE placed.state = 0) AS head,
      min(hit.no) FILTER (WHERE hit.was >= 6 AND hit.state < 6) AS first,
      min(placed.pool) FILTER (WHERE hit.was >= 6 AND hit.state < 6) AS pool,
      min(placed.slots) FILTER (WHERE hit.was >= 6 AND hit.state < 6) AS lane_slots,
      min(placed.limits) FILTER (WHERE hit.was >= 6 AND hit.state < 6) AS limits
    FROM hit LEFT JOIN placed USING (no) GROUP BY hit.lane
  ) sums
  WHERE sums.came > 0 OR sums.went > 0 OR sums.tasks <> 0 OR sums.slots <> 0 OR sums.leases <> 0 OR sums.due IS NOT NULL
    OR sums.first IS NOT NULL
)
SELECT place FROM hit
