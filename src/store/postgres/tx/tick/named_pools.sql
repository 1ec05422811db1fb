-- The pools that ready lanes name. Counters and deltas in one statement, hence in one snapshot.
WITH named AS MATERIALIZED (
  SELECT pool AS name, sum(slots_back)::bigint AS back FROM sm.lane_now GROUP BY pool HAVING bool_or(ready > 0)
)
SELECT pool.name, pool.slots, coalesce(was.used, 0) - named.back, pool.keeps_slots, pool.description
FROM named
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = named.name OFFSET 0) pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = named.name ORDER BY version DESC LIMIT 1) was ON true
