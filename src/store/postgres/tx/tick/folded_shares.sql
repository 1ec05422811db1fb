-- Returns what the shares of lanes hold of these lanes' own pools, as of the last fold: pool, share, held, what
-- comes back, stamp, dither, and the number of grants to tasks of shares. A store without shares reads no lane.
WITH pairs AS MATERIALIZED (
  SELECT DISTINCT part.pool, part.share
  FROM sm.lane CROSS JOIN LATERAL sm._shares_of(lane.pool, lane.slots, lane.limits) part
  WHERE part.pool = lane.pool AND EXISTS (SELECT FROM sm.share_use)
)
SELECT pairs.pool, pairs.share, was.held, 0::bigint, was.stamp, was.dither,
  (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1)
FROM pairs CROSS JOIN LATERAL (
  SELECT held, stamp, dither FROM sm.share_use WHERE share_use.pool = pairs.pool AND share_use.share = pairs.share
  ORDER BY version DESC LIMIT 1) was
