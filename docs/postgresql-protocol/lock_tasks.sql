-- Locks where each task stands, in order of numbers; a task that moved meanwhile is not among the rows: look
-- again.
WITH given AS MATERIALIZED (SELECT DISTINCT no FROM unnest($1::bigint[]) given (no) ORDER BY no)
SELECT given.no, coalesce(lease.no, idle.no, ready.no) FROM given
LEFT JOIN LATERAL (SELECT no FROM sm.lease WHERE lease.no = given.no FOR UPDATE) lease ON true
LEFT JOIN LATERAL (SELECT no FROM sm.idle WHERE idle.no = given.no FOR UPDATE) idle ON lease.no IS NULL
LEFT JOIN LATERAL (
  SELECT ready.no FROM sm.task CROSS JOIN LATERAL (
    SELECT ready.no FROM sm.ready WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = task.no FOR UPDATE) ready
  WHERE task.no = given.no) ready ON lease.no IS NULL AND idle.no IS NULL
