-- $1..$12 as given; of several moves of one task the first counts that its state allows.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[])
  WITH ORDINALITY given (no, epoch, allowed, state, due, keeps, forgive, lost, ended_at, finished, message, value, place)
),
sorted AS MATERIALIZED (SELECT given.no, given.epoch, bit_or(given.allowed) AS allowed FROM given GROUP BY given.no, given.epoch ORDER BY given.no),
-- Whoever locks the row first moves the task: the row is gone for the next one, at every isolation level.
leased AS (
  DELETE FROM sm.lease USING (
    SELECT lease.no FROM sorted CROSS JOIN LATERAL (
      SELECT no FROM sm.lease WHERE lease.no = sorted.no AND lease.epoch = sorted.epoch
        AND (sorted.allowed >> (1 + lease.started)::int) & 1 = 1 FOR UPDATE) lease
    WHERE sorted.allowed & 6 <> 0
  ) held
  WHERE lease.no = held.no RETURNING lease.*
),
idled AS (
  DELETE FROM sm.idle USING (
    SELECT idle.no FROM sorted CROSS JOIN LATERAL (
      SELECT no FROM sm.idle WHERE idle.no = sorted.no AND idle.epoch = sorted.epoch
        AND (sorted.allowed >> idle.state::int) & 1 = 1 FOR UPDATE) idle
    WHERE sorted.allowed & ~7 <> 0
  ) held
  WHERE idle.no = held.no RETURNING idle.*
),
readied AS (
  DELETE FROM sm.ready USING (
    SELECT ready.* FROM sorted
    CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = sorted.no OFFSET 0) task
    CROSS JOIN LATERAL (
      SELECT ready.lane, ready.rank, ready.logical_date, ready.map_index, ready.no FROM sm.ready
      WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
        AND ready.map_index = task.map_index AND ready.no = task.no AND ready.epoch = sorted.epoch FOR UPDATE) ready
    WHERE sorted.allowed & 1 = 1
  ) held
  WHERE ready.lane = held.lane AND ready.rank = held.rank AND ready.logical_date = held.logical_date
    AND ready.map_index = held.map_index AND ready.no = held.no RETURNING ready.*
),
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
  SELECT hit.*, task.rank, task.logical_date, task.map_index
  FROM hit CROSS JOIN LATERAL (SELECT rank, logical_date, map_index FROM sm.task WHERE task.no = hit.no OFFSET 0) task
  WHERE hit.due IS NOT NULL OR hit.state = 0
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
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases, rank, logical_date, map_index, no, due)
  SELECT sums.lane, sums.ready, 0, sums.slots, sums.leases, sums.head[1], sums.head[2], sums.head[3], sums.head[4], sums.due
  FROM (
    SELECT hit.lane, (count(*) FILTER (WHERE hit.state = 0)) - (count(*) FILTER (WHERE hit.was = 0)) AS ready,
      sum(hit.held * (1 - hit.keeps))::bigint AS slots, sum(hit.leases)::bigint AS leases, min(hit.due) AS due,
      min(ARRAY[placed.rank, placed.logical_date, placed.map_index, placed.no]) FILTER (WHERE placed.state = 0) AS head
    FROM hit LEFT JOIN placed USING (no) GROUP BY hit.lane
  ) sums
  WHERE sums.ready <> 0 OR sums.slots <> 0 OR sums.leases <> 0 OR sums.due IS NOT NULL OR sums.head IS NOT NULL
)
SELECT place FROM hit
