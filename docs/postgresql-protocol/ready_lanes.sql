-- Numbers only. The texts of a lane never change: a store reads those that it has not met yet by lane_needs.
SELECT lane.digest, lane.no, was.ready, was.rank, was.logical_date, was.map_index, was.no, was.early
FROM sm.lane CROSS JOIN LATERAL (
  SELECT * FROM sm.lane_use WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
WHERE was.ready > 0
