-- The pools with these names, each with its place among them, counted from 1. Counters and deltas in one
-- statement, hence in one snapshot.
-- $1: names.
WITH back AS MATERIALIZED (
  SELECT lane.pool, sum(delta.slots)::bigint AS slots FROM sm.unfolded AS delta
  CROSS JOIN LATERAL (SELECT pool FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane
  WHERE delta.slots > 0 GROUP BY lane.pool
)
SELECT pool.name, pool.slots, coalesce(was.used, 0) - coalesce(back.slots, 0), pool.keeps_slots, pool.description,
  given.place
FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = given.name ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN back ON back.pool = given.name
