-- Returns the rows of leases, idle tasks and attempts in this range that have no task.
-- $1: after this number. $2: the last number.
SELECT no FROM sm.lease
WHERE no > $1::bigint AND no <= $2::bigint
  AND NOT EXISTS (SELECT FROM sm.task WHERE task.no = lease.no OFFSET 0)
UNION ALL
SELECT no FROM sm.idle
WHERE no > $1::bigint AND no <= $2::bigint
  AND NOT EXISTS (SELECT FROM sm.task WHERE task.no = idle.no OFFSET 0)
UNION ALL
SELECT no FROM sm.attempt
WHERE no > $1::bigint AND no <= $2::bigint
  AND NOT EXISTS (SELECT FROM sm.task WHERE task.no = attempt.no OFFSET 0)
