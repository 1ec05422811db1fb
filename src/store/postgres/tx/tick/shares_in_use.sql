-- Returns what these shares hold of pools, in the columns of folded_shares.
-- $1, $2: one array per column: pool, share.
SELECT given.pool, given.share, was.held, 0::bigint, was.stamp, was.dither,
  (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1)
FROM unnest($1::text[], $2::text[]) given (pool, share) CROSS JOIN LATERAL (
  SELECT held, stamp, dither FROM sm.share_use WHERE share_use.pool = given.pool AND share_use.share = given.share
  ORDER BY version DESC LIMIT 1) was
