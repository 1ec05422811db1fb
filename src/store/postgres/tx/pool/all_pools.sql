-- Returns all pools, by name. Counters and deltas are read in one statement, hence in one snapshot. Parts are
-- grouped, never joined. If the server expects one row, it joins by looping over all.
SELECT name, max(slots), (max(used) - coalesce(sum(back), 0))::bigint, max(keeps_slots), max(description)
FROM (
  SELECT pool.name, pool.slots, coalesce(was.used, 0) AS used, pool.keeps_slots, pool.description,
    NULL::bigint AS back
  FROM (SELECT * FROM sm.pool ORDER BY pool.name OFFSET 0) pool
  LEFT JOIN LATERAL (
    SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1) was ON true
  UNION ALL
  SELECT part.pool, NULL, NULL, NULL, NULL, delta.slots / lane.slots * part.slots
  FROM sm.unfolded AS delta
  CROSS JOIN LATERAL (SELECT pool, slots, limits FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane
  CROSS JOIN LATERAL sm._pools_of(lane.pool, lane.slots, lane.limits) part
  WHERE delta.slots > 0
) pool
GROUP BY name HAVING count(used) > 0
ORDER BY name
