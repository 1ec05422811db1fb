-- Returns the limits of the known ones of these keys, each with its place among the keys, counted from 1. A key
-- is known if it is defined, counts, or is carried by a task that has not ended. Counters and deltas are read
-- in one statement, hence in one snapshot.
-- $1: keys.
WITH
lanes AS MATERIALIZED (
  SELECT coalesce(lane.limits, more.limits) AS limits, more.leases,
    (coalesce(was.tasks, 0) + more.tasks > 0)::integer - (lane.digest IS NOT NULL)::integer AS lanes
  FROM (
    SELECT lane AS digest, sum(tasks)::bigint AS tasks, sum(leases)::bigint AS leases, min(limits) AS limits
    FROM sm.unfolded GROUP BY lane
  ) more
  LEFT JOIN LATERAL (SELECT digest, limits FROM sm.lane WHERE lane.digest = more.digest OFFSET 0) lane ON true
  LEFT JOIN LATERAL (
    SELECT tasks FROM sm.lane_use WHERE lane_use.digest = more.digest ORDER BY version DESC LIMIT 1) was ON true
),
more AS MATERIALIZED (
  SELECT carried.key, sum(lanes.leases * carried.count)::bigint AS leases, sum(lanes.lanes)::bigint AS lanes
  FROM lanes CROSS JOIN LATERAL sm._carried(lanes.limits) carried GROUP BY carried.key
)
SELECT given.key, limited.max, coalesce(was.used, 0) - coalesce(more.leases, 0), (limited.key IS NOT NULL)::integer::bigint, limited.starts, limited.period,
  limited.burst, limited.weight, given.place
FROM unnest($1::text[]) WITH ORDINALITY given (key, place)
LEFT JOIN LATERAL (
  SELECT key, max, starts, period, burst, weight FROM sm.task_limit WHERE task_limit.key = given.key OFFSET 0) limited ON true
LEFT JOIN LATERAL (
  SELECT used, lanes FROM sm.limit_use WHERE limit_use.key = given.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN more ON more.key = given.key
WHERE limited.key IS NOT NULL OR coalesce(was.used, 0) - coalesce(more.leases, 0) > 0
  OR coalesce(was.lanes, 0) + coalesce(more.lanes, 0) > 0
