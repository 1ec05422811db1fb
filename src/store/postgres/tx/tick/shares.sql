-- Returns what the shares of lanes hold of these lanes' own pools: pool, share, held before deltas, what deltas
-- give back, stamp, dither, and the number of grants to tasks of shares. Counters and deltas are read in one
-- statement, hence in one snapshot. A store without shares reads no lane.
WITH parts AS MATERIALIZED (
  SELECT part.pool, part.share, lane.slots_back / lane.slots * part.slots AS back, part.pool = lane.pool AS is_own
  FROM sm.lane_now lane CROSS JOIN LATERAL sm._shares_of(lane.pool, lane.slots, lane.limits) part
  WHERE EXISTS (SELECT FROM sm.share_use) OR EXISTS (SELECT FROM sm.unfolded WHERE unfolded.limits LIKE '%]%]')
),
pairs AS MATERIALIZED (
  SELECT pool, share, sum(back)::bigint AS back FROM parts GROUP BY pool, share HAVING bool_or(is_own)
)
SELECT pairs.pool, pairs.share, was.held, pairs.back, was.stamp, was.dither,
  (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1)
FROM pairs LEFT JOIN LATERAL (
  SELECT held, stamp, dither FROM sm.share_use WHERE share_use.pool = pairs.pool AND share_use.share = pairs.share
  ORDER BY version DESC LIMIT 1) was ON true
