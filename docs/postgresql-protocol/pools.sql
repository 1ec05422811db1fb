-- Counter and deltas in one statement, hence in one snapshot. $1 names.
WITH back AS MATERIALIZED (
  SELECT lane.pool, sum(delta.slots)::bigint AS slots FROM sm.unfolded AS delta
  CROSS JOIN LATERAL (SELECT pool FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane
  WHERE delta.slots > 0 GROUP BY lane.pool
)
SELECT place, pool.slots, coalesce(was.used, 0) - coalesce((SELECT slots FROM back WHERE back.pool = pool.name), 0), keeps_slots, description
FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
LEFT JOIN LATERAL (SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1) was ON true
