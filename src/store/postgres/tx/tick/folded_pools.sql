-- Returns the pools that ready lanes name, or all if $1 is 1, as of the last fold.
-- $1: 1 for all pools.
WITH named AS MATERIALIZED (
  SELECT DISTINCT part.pool AS name FROM sm.lane CROSS JOIN LATERAL (
    SELECT ready FROM sm.lane_use WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
  CROSS JOIN LATERAL sm._pools_of(lane.pool, lane.slots, lane.limits) part
  WHERE was.ready > 0 AND $1::bigint = 0
  UNION
  SELECT part.pool FROM (SELECT DISTINCT lane FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL) keeping
  CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = keeping.lane OFFSET 0) lane
  CROSS JOIN LATERAL sm._pools_of(lane.pool, lane.slots, lane.limits) part
  WHERE $1::bigint = 0
  UNION ALL
  SELECT name FROM sm.pool WHERE $1::bigint = 1
)
SELECT pool.name, pool.slots, coalesce(was.used, 0), pool.keeps_slots, pool.description
FROM named
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = named.name OFFSET 0) pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = named.name ORDER BY version DESC LIMIT 1) was ON true
