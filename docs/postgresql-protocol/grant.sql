-- $1..$5 the places of the tasks in order of admission (lane, rank, date, index, no), $6 holder, $7 expiry, $8 now, $9 1: started,
-- $10..$14 of each lane: its digest, and the place before which no ready task of it is left.
-- Grants all of them or none: a row that is locked or gone leaves the plan without it.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
    given (lane, rank, logical_date, map_index, no, place)
),
locked AS MATERIALIZED (
  SELECT given.place, ready.no FROM given CROSS JOIN LATERAL (
    SELECT no FROM sm.ready WHERE ready.lane = given.lane AND ready.rank = given.rank
      AND ready.logical_date = given.logical_date AND ready.map_index = given.map_index AND ready.no = given.no
    FOR UPDATE SKIP LOCKED) ready
),
gone AS (
  DELETE FROM sm.ready USING given
  WHERE ready.lane = given.lane AND ready.rank = given.rank AND ready.logical_date = given.logical_date
    AND ready.map_index = given.map_index AND ready.no = given.no
    AND (SELECT count(*) FROM locked) = cardinality($5::bigint[])
  RETURNING ready.*, given.place
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
  SELECT was.digest, was.version, was.ready - taken.tasks AS ready, was.tasks, bound.rank, bound.logical_date, bound.map_index, bound.no
  FROM (SELECT lane AS digest, count(*) AS tasks FROM granted GROUP BY lane) taken
  JOIN unnest($10::uuid[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[]) bound (digest, rank, logical_date, map_index, no)
    ON bound.digest = taken.digest
  CROSS JOIN LATERAL (SELECT * FROM sm.lane_use WHERE lane_use.digest = taken.digest ORDER BY version DESC LIMIT 1) was
),
old_lanes AS (DELETE FROM sm.lane_use USING lanes WHERE lane_use.digest = lanes.digest AND lane_use.version = lanes.version),
new_lanes AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no)
  SELECT digest, nextval('sm.version'), ready, tasks, rank, logical_date, map_index, no FROM lanes
),
pools AS MATERIALIZED (
  SELECT taken.pool, was.version, coalesce(was.used, 0) + taken.slots AS used, pool.slots IS NULL OR coalesce(was.used, 0) + taken.slots <= pool.slots AS had_room
  FROM (SELECT pool, sum(slots)::bigint AS slots FROM granted GROUP BY pool) taken
  JOIN LATERAL (SELECT slots FROM sm.pool WHERE pool.name = taken.pool OFFSET 0) pool ON true
  LEFT JOIN LATERAL (SELECT * FROM sm.pool_use WHERE pool_use.name = taken.pool ORDER BY version DESC LIMIT 1) was ON true
),
old_pools AS (DELETE FROM sm.pool_use USING pools WHERE pool_use.name = pools.pool AND pool_use.version = pools.version),
new_pools AS (INSERT INTO sm.pool_use (name, version, used) SELECT pool, nextval('sm.version'), used FROM pools),
limits AS MATERIALIZED (
  SELECT taken.key, was.version, coalesce(was.used, 0) + taken.tasks AS used, coalesce(was.lanes, 0) AS lanes,
    coalesce(was.used, 0) + taken.tasks <= coalesce(limited.max, 9223372036854775807) AS had_room
  FROM (SELECT carried.key, count(*) AS tasks FROM granted CROSS JOIN LATERAL json_array_elements_text(granted.limits::json) carried (key) GROUP BY carried.key) taken
  LEFT JOIN LATERAL (SELECT max FROM sm.task_limit WHERE task_limit.key = taken.key OFFSET 0) limited ON true
  LEFT JOIN LATERAL (SELECT * FROM sm.limit_use WHERE limit_use.key = taken.key ORDER BY version DESC LIMIT 1) was ON true
),
old_limits AS (DELETE FROM sm.limit_use USING limits WHERE limit_use.key = limits.key AND limit_use.version = limits.version),
new_limits AS (INSERT INTO sm.limit_use (key, version, used, lanes) SELECT key, nextval('sm.version'), used, lanes FROM limits)
SELECT place, no, epoch + 1, NOT EXISTS (SELECT FROM pools WHERE NOT had_room) AND NOT EXISTS (SELECT FROM limits WHERE NOT had_room)
  AND (SELECT count(DISTINCT pool) FROM granted) = (SELECT count(*) FROM pools)
FROM granted
