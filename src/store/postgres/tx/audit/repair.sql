-- Adds to the counters what an audit under the tick lock found missing. All versions of a counter are deleted,
-- because the audit sums the versions of pools and limits. Each counter keeps what deltas will give back: only
-- what is missing is added. A pool or a limit that reaches 0 has no row, and a lane that reaches 0 is removed
-- by the next whole fold.
-- $1: pools; $2: slots. $3: limit keys; $4: leases; $5: lanes. $6 to $9: the needs of lanes, '' for the default
-- queue; $10: ready tasks; $11: tasks. $12, $13: pools and shares; $14: slots; $15: lanes.
WITH
pools AS MATERIALIZED (
  SELECT given.name, given.more + coalesce(was.used, 0) AS used
  FROM unnest($1::text[], $2::bigint[]) given (name, more)
  CROSS JOIN LATERAL (SELECT sum(used)::bigint AS used FROM sm.pool_use WHERE pool_use.name = given.name) was
),
old_pool_uses AS (DELETE FROM sm.pool_use WHERE name = ANY ($1::text[])),
pool_uses AS (
  INSERT INTO sm.pool_use (name, version, used)
  SELECT name, nextval('sm.version'), used FROM pools WHERE used <> 0
),
limits AS MATERIALIZED (
  SELECT given.key, given.used + coalesce(was.used, 0) AS used, given.lanes + coalesce(was.lanes, 0) AS lanes
  FROM unnest($3::text[], $4::bigint[], $5::bigint[]) given (key, used, lanes)
  CROSS JOIN LATERAL (
    SELECT sum(used)::bigint AS used, sum(lanes)::bigint AS lanes FROM sm.limit_use
    WHERE limit_use.key = given.key) was
),
old_limit_uses AS (DELETE FROM sm.limit_use WHERE key = ANY ($3::text[])),
limit_uses AS (
  INSERT INTO sm.limit_use (key, version, used, lanes)
  SELECT key, nextval('sm.version'), used, lanes FROM limits WHERE used <> 0 OR lanes <> 0
),
shares AS MATERIALIZED (
  SELECT given.pool, given.share, given.held + coalesce(was.held, 0) AS held, given.lanes + coalesce(was.lanes, 0) AS lanes,
    coalesce(was.stamp, 2 * clock.grants) AS stamp, coalesce(was.dither, 0) AS dither
  FROM unnest($12::text[], $13::text[], $14::bigint[], $15::bigint[]) given (pool, share, held, lanes)
  CROSS JOIN LATERAL (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1) clock
  CROSS JOIN LATERAL (
    SELECT sum(held)::bigint AS held, sum(lanes)::bigint AS lanes, max(stamp) AS stamp, max(dither) AS dither
    FROM sm.share_use WHERE share_use.pool = given.pool AND share_use.share = given.share) was
),
old_share_uses AS (
  DELETE FROM sm.share_use USING shares WHERE share_use.pool = shares.pool AND share_use.share = shares.share
),
share_uses AS (
  INSERT INTO sm.share_use (pool, share, version, held, lanes, stamp, dither)
  SELECT pool, share, nextval('sm.version'), held, lanes, stamp, dither FROM shares WHERE held <> 0 OR lanes <> 0
),
lanes AS MATERIALIZED (
  SELECT was.digest, was.ready + given.ready AS ready, was.tasks + given.tasks AS tasks, was.rank, was.logical_date,
    was.map_index, was.no, was.early
  FROM unnest($6::text[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::bigint[])
    given (pool, slots, limits, queue, ready, tasks)
  CROSS JOIN LATERAL (
    SELECT * FROM sm.lane_use
    WHERE lane_use.digest = sm._lane_digest(given.pool, given.slots, given.limits, nullif(given.queue, ''))
    ORDER BY version DESC LIMIT 1) was
),
old_lane_uses AS (DELETE FROM sm.lane_use WHERE digest = ANY (ARRAY(SELECT digest FROM lanes)))
INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
SELECT digest, nextval('sm.version'), ready, tasks, rank, logical_date, map_index, no, early FROM lanes
