-- Locks each task's row in ready, lease or idle, in order of numbers, and returns the numbers of the locked
-- tasks. A task that moved meanwhile is missing: look again.
-- passing: whether rows locked by other transactions are skipped.
-- $1: numbers, each once.
WITH
given AS MATERIALIZED (SELECT no FROM unnest($1::bigint[]) given (no) ORDER BY no),
held AS MATERIALIZED (
  SELECT coalesce(lease.no, idle.no, ready.no) AS no
  FROM given
  LEFT JOIN LATERAL (SELECT no FROM sm.lease WHERE lease.no = given.no FOR UPDATE{passing}) lease ON true
  LEFT JOIN LATERAL (SELECT no FROM sm.idle WHERE idle.no = given.no FOR UPDATE{passing}) idle ON true
  LEFT JOIN LATERAL (
    SELECT ready.no
    FROM (SELECT lane, rank, logical_date, map_index FROM sm.task WHERE task.no = given.no OFFSET 0) task
    CROSS JOIN LATERAL (
      SELECT ready.no FROM sm.ready
      WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
        AND ready.map_index = task.map_index AND ready.no = given.no
      FOR UPDATE{passing}
    ) ready
  ) ready ON true
)
SELECT no FROM held WHERE no IS NOT NULL
