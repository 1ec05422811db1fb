-- $1..$5 the places of the tasks in order of admission (lane, rank, date, index, no), $6 holder, $7 expiry,
-- $8 now, $9 1: started, $10..$14 of each lane: its digest and its new bound, $15, $16 the tasks that stay
-- before the bounds: lane and number. Grants all of them or none. No row: a task was locked or gone, and
-- nothing was changed. FALSE: roll back.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
    given (lane, rank, logical_date, map_index, no, place)
),
locked AS MATERIALIZED (
  SELECT ready.at, given.place FROM given CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready WHERE ready.lane = given.lane AND ready.rank = given.rank
      AND ready.logical_date = given.logical_date AND ready.map_index = given.map_index AND ready.no = given.no
    FOR UPDATE SKIP LOCKED) ready
),
-- A row of ready is never updated, so its ctid is as good as its key.
gone AS (
  DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(
    SELECT at FROM locked WHERE (SELECT count(*) FROM locked) = cardinality($5::bigint[])))
  RETURNING ready.*
),
granted AS MATERIALIZED (
  SELECT gone.*, task.slots, lane.pool, lane.limits,
    greatest($8::bigint, task.enqueued_at, gone.ready_at, gone.queued_at, gone.started_at, gone.ended_at) AS at
  FROM gone CROSS JOIN LATERAL (SELECT slots, enqueued_at FROM sm.task WHERE task.no = gone.no OFFSET 0) task
  CROSS JOIN LATERAL (SELECT pool, limits FROM sm.lane WHERE lane.digest = gone.lane OFFSET 0) lane
),
leases AS (
  INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, started, started_at,
    first_started_at, ended_at, forgiven, lost, finished, holder, message, value)
  SELECT no, epoch + 1, lane, slots, $7::bigint, at, least(attempt + 1, 4294967295), ready_at, $9::bigint,
    CASE $9::bigint WHEN 1 THEN at ELSE started_at END,
    CASE $9::bigint WHEN 1 THEN coalesce(first_started_at, at) ELSE first_started_at END,
    ended_at, forgiven, lost, finished, $6::text, message, value
  FROM granted
),
lanes AS MATERIALIZED (
  SELECT taken.digest, was.at, was.ready - taken.tasks AS ready, was.tasks, bound.rank, bound.logical_date,
    bound.map_index, bound.no, coalesce(early.early, '{}') AS early
  FROM (SELECT lane AS digest, count(*) AS tasks FROM granted GROUP BY lane) taken
  JOIN unnest($10::uuid[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
    bound (digest, rank, logical_date, map_index, no) ON bound.digest = taken.digest
  LEFT JOIN (
    SELECT lane AS digest, array_agg(no) AS early FROM unnest($15::uuid[], $16::bigint[]) early (lane, no) GROUP BY lane
  ) early ON early.digest = taken.digest
  CROSS JOIN LATERAL (
    SELECT ctid AS at, ready, tasks FROM sm.lane_use WHERE lane_use.digest = taken.digest ORDER BY version DESC LIMIT 1) was
),
old_lanes AS (DELETE FROM sm.lane_use WHERE ctid = ANY (ARRAY(SELECT at FROM lanes))),
new_lanes AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
  SELECT digest, nextval('sm.version'), ready, tasks, rank, logical_date, map_index, no, early FROM lanes
),
pools AS MATERIALIZED (
  SELECT taken.pool, was.at, coalesce(was.used, 0) + taken.slots AS used,
    pool.slots IS NULL OR coalesce(was.used, 0) + taken.slots <= pool.slots AS had_room
  FROM (SELECT pool, sum(slots)::bigint AS slots FROM granted GROUP BY pool) taken
  CROSS JOIN LATERAL (SELECT slots FROM sm.pool WHERE pool.name = taken.pool OFFSET 0) pool
  LEFT JOIN LATERAL (
    SELECT ctid AS at, used FROM sm.pool_use WHERE pool_use.name = taken.pool ORDER BY version DESC LIMIT 1) was ON true
),
old_pools AS (DELETE FROM sm.pool_use WHERE ctid = ANY (ARRAY(SELECT at FROM pools))),
new_pools AS (INSERT INTO sm.pool_use (name, version, used) SELECT pool, nextval('sm.version'), used FROM pools),
limits AS MATERIALIZED (
  SELECT taken.key, was.at, coalesce(was.used, 0) + taken.tasks AS used, coalesce(was.lanes, 0) AS lanes,
    coalesce(was.used, 0) + taken.tasks <= coalesce(limited.max, 9223372036854775807) AS had_room
  FROM (
    SELECT carried.key, count(*) AS tasks
    FROM granted CROSS JOIN LATERAL json_array_elements_text(granted.limits::json) carried (key) GROUP BY carried.key
  ) taken
  LEFT JOIN LATERAL (SELECT max FROM sm.task_limit WHERE task_limit.key = taken.key OFFSET 0) limited ON true
  LEFT JOIN LATERAL (
    SELECT ctid AS at, used, lanes FROM sm.limit_use WHERE limit_use.key = taken.key ORDER BY version DESC LIMIT 1) was ON true
),
old_limits AS (DELETE FROM sm.limit_use WHERE ctid = ANY (ARRAY(SELECT at FROM limits))),
new_limits AS (
  INSERT INTO sm.limit_use (key, version, used, lanes) SELECT key, nextval('sm.version'), used, lanes FROM limits
)
SELECT given.place, gone.no, gone.epoch + 1,
  NOT EXISTS (SELECT FROM pools WHERE NOT had_room) AND NOT EXISTS (SELECT FROM limits WHERE NOT had_room)
  AND (SELECT count(*) FROM granted) = (SELECT count(*) FROM gone)
  AND (SELECT count(*) FROM lanes) = (SELECT count(DISTINCT lane) FROM gone)
  AND (SELECT count(*) FROM pools) = (SELECT count(DISTINCT pool) FROM granted)
FROM gone JOIN given ON given.no = gone.no
