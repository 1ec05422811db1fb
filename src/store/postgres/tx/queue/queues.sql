-- Returns the queues with tasks that have not ended: name, and the tasks that are ready, wait, have a lease,
-- and sense. Counters, deltas and tasks are read in one statement, hence in one snapshot.
WITH
lanes AS MATERIALIZED (SELECT digest, coalesce(queue, 'default') AS queue, ready, tasks FROM sm.lane_now),
stands AS MATERIALIZED (
  SELECT lane, sum(leased)::bigint AS leased, sum(sensing)::bigint AS sensing, sum(keeping)::bigint AS keeping
  FROM (
    SELECT lane, 1 AS leased, 0 AS sensing, 0 AS keeping FROM sm.lease
    UNION ALL
    SELECT lane, 0, 1, 0 FROM sm.idle WHERE state = 4
    UNION ALL
    SELECT lane, 0, 0, 1 FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL
  ) stands
  GROUP BY lane
)
SELECT queue, greatest(sum(ready), 0)::bigint, greatest(sum(tasks) - sum(leased) - sum(sensing), 0)::bigint,
  sum(leased)::bigint, sum(sensing)::bigint
FROM (
  SELECT queue, ready, tasks, 0 AS leased, 0 AS sensing FROM lanes
  UNION ALL
  SELECT lanes.queue, stands.keeping, 0, stands.leased, stands.sensing FROM stands JOIN lanes ON lanes.digest = stands.lane
) parts
GROUP BY queue
HAVING sum(tasks) > 0
ORDER BY queue
