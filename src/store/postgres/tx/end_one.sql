-- What end.sql does for one end, with a plan a third as long: what a short statement costs is mostly to set its
-- plan up. Returns the same.
-- $1 to $6: number, epoch, new state, ended at, message, value. $7: as in end.sql.
WITH
gone AS (
  DELETE FROM sm.lease WHERE lease.no = $1::bigint AND lease.epoch = $2::bigint AND coalesce(lease.runs, 0) & 8 = 0
  RETURNING lease.*,
    greatest($4::bigint, lease.ready_at, lease.queued_at, lease.started_at, lease.ended_at) AS at
),
to_idle AS (
  INSERT INTO sm.idle (
    no, state, epoch, lane, ready_at, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at,
    finished, message, value
  )
  SELECT no, $3::bigint, epoch, lane, at, attempt, forgiven, lost, queued_at, first_started_at, started_at, at,
    $3::bigint, $5::text, $6::text
  FROM gone
),
told AS (
  INSERT INTO sm.feed_inbox (no, attempt, at, state, map_index, namespace, workflow, run, task, value, message)
  SELECT gone.no, gone.attempt, gone.at, $3::bigint, task.map_index, task.namespace, task.workflow, task.run,
    task.task, $6::text, $5::text
  FROM gone
  CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = gone.no OFFSET 0) task
  WHERE gone.runs & 2 <> 0
),
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came) SELECT lane, 0, -1, slots, 1, 0 FROM gone
)
SELECT 1::bigint, started = 1 AND coalesce(runs, 0) & 1 = 1, coalesce(runs, 0) & 2 <> 0 FROM gone
UNION ALL
SELECT NULL, FALSE, FALSE FROM (SELECT count(*) FILTER (WHERE coalesce(runs, 0) & 1 = 0) AS plain FROM gone) counted
WHERE CASE WHEN $7::bigint = 0 THEN FALSE ELSE 1 / (plain = $7::bigint)::int IS NULL END
