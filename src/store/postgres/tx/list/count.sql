-- Returns counts of tasks: by state, those that have not ended as -1, and the ready ones as -2. Counters,
-- deltas and tasks are read in one statement, hence in one snapshot.
-- $1: up to how many are counted one by one.
WITH
lanes AS MATERIALIZED (
  SELECT coalesce(sum(tasks), 0) AS tasks, coalesce(sum(ready), 0) AS ready FROM sm.lane_now),
leases AS MATERIALIZED (
  SELECT count(*) AS leased, count(*) FILTER (WHERE started <> 0) AS running FROM sm.lease)
SELECT -1::bigint, greatest(tasks, 0)::bigint FROM lanes
UNION ALL
SELECT -2, greatest(ready, 0)::bigint + (SELECT count(*) FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL) FROM lanes
UNION ALL
SELECT 1, leased - running FROM leases
UNION ALL
SELECT 2, running FROM leases
UNION ALL
SELECT 4, count(*) FROM sm.idle WHERE state = 4
UNION ALL
SELECT 3, count(*) FROM (SELECT FROM sm.idle WHERE state = 3 LIMIT $1::bigint) retries
UNION ALL
SELECT 6, count(*) FROM (SELECT FROM sm.idle WHERE state >= 6 AND state = 6 LIMIT $1::bigint) succeeded
UNION ALL
SELECT 7, count(*) FROM (SELECT FROM sm.idle WHERE state >= 6 AND state = 7 LIMIT $1::bigint) failed
UNION ALL
SELECT 8, count(*) FROM (SELECT FROM sm.idle WHERE state >= 6 AND state = 8 LIMIT $1::bigint) skipped
UNION ALL
SELECT 9, count(*) FROM (SELECT FROM sm.idle WHERE state >= 6 AND state = 9 LIMIT $1::bigint) cancelled
