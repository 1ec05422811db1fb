-- Returns the tasks of a page that are not in exactly one table, or whose rows contradict each other: number,
-- in how many rows it is, state, slots it holds, and whether its row differs from the task in its lane or
-- slots, or lasts longer than the task's cancel allows.
-- $1: after this task. $2: the last task.
SELECT task.no, stands.times, stands.state, stands.held, stands.strange
FROM sm.task
CROSS JOIN LATERAL (
  SELECT count(*) AS times, min(state) AS state, coalesce(sum(held), 0)::bigint AS held, bool_or(strange) AS strange,
    bool_or(is_due) AS is_due
  FROM (
    SELECT 0 AS state, 0 AS held, false AS strange, NULL::boolean AS is_due FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = task.no
    UNION ALL
    SELECT 1 + started, slots, lease.lane <> task.lane OR lease.slots <> task.slots
        OR coalesce(lease.expires_at > lease.cancel_at, false), NULL FROM sm.lease
    WHERE lease.no = task.no
    UNION ALL
    SELECT state, coalesce(slots, 0), idle.lane <> task.lane OR coalesce(idle.slots, 0) NOT IN (0, task.slots)
      OR (due IS NOT NULL OR state = 5) AND (rank, logical_date, map_index)
        IS DISTINCT FROM (task.rank, task.logical_date, task.map_index), due IS NOT NULL FROM sm.idle
    WHERE idle.no = task.no
  ) stands
  OFFSET 0) stands
WHERE task.no > $1::bigint AND task.no <= $2::bigint
  AND (stands.times <> 1 OR stands.strange
    OR (stands.state = 3 OR stands.state = 5 AND stands.held = 0) <> coalesce(stands.is_due, false)
    OR stands.state NOT IN (1, 2, 4, 5) AND stands.held <> 0)
ORDER BY task.no
