-- All pools, by name. Counters and deltas in one statement, hence in one snapshot.
WITH back AS MATERIALIZED (
  SELECT lane.pool, sum(delta.slots)::bigint AS slots FROM sm.unfolded AS delta
  CROSS JOIN LATERAL (SELECT pool FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane
  WHERE delta.slots > 0 GROUP BY lane.pool
)
SELECT pool.name, pool.slots, coalesce(was.used, 0) - coalesce(back.slots, 0), pool.keeps_slots, pool.description
FROM sm.pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN back ON back.pool = pool.name
ORDER BY pool.name
