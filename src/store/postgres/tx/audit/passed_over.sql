-- The tasks that no tick would find: those that are ready before the bound of their lane, and those that wait
-- for an instant before the bound of ticks, but are neither early nor announced by a delta. Returns each task
-- and whether it is ready.
WITH
last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
from_due AS MATERIALIZED (SELECT least(last.due, (SELECT min(due) FROM sm.unfolded)) AS due FROM last),
lanes AS MATERIALIZED (SELECT digest, bound, early FROM sm.lane_now)
SELECT ready.no, true FROM lanes CROSS JOIN LATERAL (
  SELECT no FROM sm.ready
  WHERE ready.lane = lanes.digest
    AND (rank, logical_date, map_index, no) < (lanes.bound[1], lanes.bound[2], lanes.bound[3], lanes.bound[4])
    AND ready.no <> ALL (lanes.early)
  OFFSET 0) ready
UNION ALL
SELECT idle.no, false FROM sm.idle
WHERE idle.due < (SELECT due FROM from_due) AND idle.no <> ALL ((SELECT early FROM last)::bigint[])
