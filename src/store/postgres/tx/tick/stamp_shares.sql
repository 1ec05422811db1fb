-- Stamps the shares that had turns, and records the number of the last grant.
-- $1 to $4: one array per column: pool, share, stamp, dither.
WITH given AS MATERIALIZED (
  SELECT given.*, was.at, coalesce(was.held, 0) AS held, coalesce(was.lanes, 0) AS lanes
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) given (pool, share, stamp, dither)
  LEFT JOIN LATERAL (
    SELECT ctid AS at, held, lanes FROM sm.share_use
    WHERE share_use.pool = given.pool AND share_use.share = given.share ORDER BY version DESC LIMIT 1) was ON true
),
last AS MATERIALIZED (
  SELECT max(given.stamp) / 2 AS grants FROM given
  HAVING max(given.stamp) / 2 > (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1)
),
old_clock AS (DELETE FROM sm.share_clock WHERE grants < (SELECT grants FROM last)),
new_clock AS (INSERT INTO sm.share_clock (grants) SELECT grants FROM last),
old_uses AS (DELETE FROM sm.share_use WHERE ctid = ANY (ARRAY(SELECT at FROM given)))
INSERT INTO sm.share_use (pool, share, version, held, lanes, stamp, dither)
SELECT pool, share, nextval('sm.version'), held, lanes, stamp, dither FROM given
