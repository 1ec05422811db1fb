-- The lanes that have ready tasks, as the last fold left them: a tick plans with the counters that its grant
-- changes, not with what was committed since it folded.
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, was.ready, was.bound, was.early
FROM sm.lane CROSS JOIN LATERAL (
  SELECT ready, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
WHERE was.ready > 0
