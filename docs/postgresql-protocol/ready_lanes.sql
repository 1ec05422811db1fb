SELECT lane.no, lane.digest, lane.pool, lane.slots, lane.limits, was.ready, was.rank, was.logical_date, was.map_index, was.no
FROM sm.lane CROSS JOIN LATERAL (
  SELECT * FROM sm.lane_use WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
WHERE was.ready > 0
