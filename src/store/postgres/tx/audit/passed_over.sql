-- Returns the tasks that no tick would find, and a code: 0 ready before the bound of its lane; 1 waiting for an
-- instant before the bound of ticks. Early tasks and those announced by a delta are excluded. Code 2 is a row
-- of ready without a task.
WITH
last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
from_due AS MATERIALIZED (SELECT least(last.due, (SELECT min(due) FROM sm.unfolded)) AS due FROM last),
lanes AS MATERIALIZED (SELECT digest, bound, early FROM sm.lane_now)
SELECT ready.no, 0::bigint FROM lanes CROSS JOIN LATERAL (
  SELECT no FROM sm.ready
  WHERE ready.lane = lanes.digest
    AND (rank, logical_date, map_index, no) < (lanes.bound[1], lanes.bound[2], lanes.bound[3], lanes.bound[4])
    AND ready.no <> ALL (lanes.early)
  OFFSET 0) ready
UNION ALL
SELECT idle.no, 1 FROM sm.idle
WHERE idle.due < (SELECT due FROM from_due) AND idle.no <> ALL ((SELECT early FROM last)::bigint[])
UNION ALL
SELECT ready.no, 2 FROM sm.ready WHERE NOT EXISTS (SELECT FROM sm.task WHERE task.no = ready.no OFFSET 0)
