-- After LOCK TABLE. Counter and deltas in one statement.
WITH back AS MATERIALIZED (
  SELECT lane.pool, sum(delta.slots)::bigint AS slots FROM sm.unfolded AS delta
  CROSS JOIN LATERAL (SELECT pool FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane
  WHERE delta.slots > 0 GROUP BY lane.pool),
asked AS MATERIALIZED (
  SELECT place, pool.name, coalesce(was.used, 0) - coalesce((SELECT slots FROM back WHERE back.pool = pool.name), 0) AS used
  FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
  CROSS JOIN LATERAL (SELECT name FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
  LEFT JOIN LATERAL (SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1) was ON true),
gone AS (DELETE FROM sm.pool WHERE name = ANY (ARRAY(SELECT name FROM asked WHERE used = 0 AND name <> 'default_pool')))
SELECT place, used FROM asked
