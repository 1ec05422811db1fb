-- The rows without a task. In one statement, hence in one snapshot.
SELECT stands.no FROM (
  SELECT no FROM sm.ready UNION ALL SELECT no FROM sm.lease UNION ALL SELECT no FROM sm.idle
) stands
WHERE NOT EXISTS (SELECT FROM sm.task WHERE task.no = stands.no OFFSET 0)
LIMIT $1::bigint
