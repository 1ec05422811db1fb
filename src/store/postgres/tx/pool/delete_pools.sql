-- Deletes the pools without used slots, but never the default pool. Returns the place of each existing pool,
-- counted from 1, and how many of its slots are used.
-- $1: names.
WITH
asked AS MATERIALIZED (
  SELECT name, (max(used) - coalesce(sum(back), 0))::bigint AS used,
    array_agg(place) FILTER (WHERE place IS NOT NULL) AS places
  FROM (
    SELECT pool.name, coalesce(was.used, 0) AS used, given.place, NULL::bigint AS back
    FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
    CROSS JOIN LATERAL (SELECT name FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
    LEFT JOIN LATERAL (
      SELECT used FROM sm.pool_use WHERE pool_use.name = given.name ORDER BY version DESC LIMIT 1) was ON true
    UNION ALL
    SELECT part.pool, NULL, NULL, delta.slots / lane.slots * part.slots
    FROM sm.unfolded AS delta
    CROSS JOIN LATERAL (SELECT pool, slots, limits FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane
    CROSS JOIN LATERAL sm._pools_of(lane.pool, lane.slots, lane.limits) part
    WHERE delta.slots > 0
  ) pool
  GROUP BY name HAVING count(place) > 0
),
gone AS (
  DELETE FROM sm.pool WHERE name = ANY (ARRAY(SELECT name FROM asked WHERE used = 0 AND name <> 'default_pool'))
)
SELECT unnest(places), used FROM asked
