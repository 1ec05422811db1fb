-- Returns the pools that ready lanes name. Counters and deltas are read in one statement, hence in one
-- snapshot.
WITH keeping AS MATERIALIZED (SELECT DISTINCT lane FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL),
named AS MATERIALIZED (
  SELECT part.pool AS name, sum(lane.slots_back / lane.slots * part.slots)::bigint AS back
  FROM sm.lane_now lane CROSS JOIN LATERAL sm._pools_of(lane.pool, lane.slots, lane.limits) part
  GROUP BY part.pool HAVING bool_or(lane.ready > 0 OR lane.digest IN (SELECT lane FROM keeping))
)
SELECT pool.name, pool.slots, coalesce(was.used, 0) - named.back, pool.keeps_slots, pool.description
FROM named
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = named.name OFFSET 0) pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = named.name ORDER BY version DESC LIMIT 1) was ON true
