-- Starts tasks that are queued under these epochs. Returns their numbers, their epochs, and whether their
-- attempts are recorded as runs.
-- $1, $2: numbers and epochs; $3: now.
WITH
given AS MATERIALIZED (
  SELECT DISTINCT no, epoch FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch)
),
held AS MATERIALIZED (
  SELECT lease.no
  FROM (SELECT * FROM given ORDER BY no) given
  CROSS JOIN LATERAL (
    SELECT no FROM sm.lease
    WHERE lease.no = given.no AND lease.epoch = given.epoch AND lease.started = 0
    FOR NO KEY UPDATE
  ) lease
)
-- A lease was queued no earlier than its task was enqueued, so enqueued_at is not needed.
UPDATE sm.lease SET started = 1,
  started_at = greatest($3::bigint, ready_at, queued_at, started_at, ended_at),
  first_started_at = coalesce(first_started_at,
    greatest($3::bigint, ready_at, queued_at, started_at, ended_at))
WHERE no = ANY (ARRAY(SELECT no FROM held))
RETURNING lease.no, lease.epoch, (SELECT attempt_runs & 1 FROM sm.task WHERE task.no = lease.no)
