-- Returns all defined limits, by key. Counters and deltas are read in one statement, hence in one snapshot.
WITH
lanes AS MATERIALIZED (
  SELECT lane.limits, more.leases
  FROM (SELECT lane AS digest, sum(leases)::bigint AS leases FROM sm.unfolded WHERE leases > 0 GROUP BY lane) more
  CROSS JOIN LATERAL (SELECT limits FROM sm.lane WHERE lane.digest = more.digest OFFSET 0) lane
),
back AS MATERIALIZED (
  SELECT carried.key, sum(lanes.leases * carried.count)::bigint AS leases
  FROM lanes CROSS JOIN LATERAL sm._carried(lanes.limits) carried GROUP BY carried.key
)
SELECT task_limit.key, task_limit.max, coalesce(was.used, 0) - coalesce(back.leases, 0), 1::bigint, task_limit.starts,
  task_limit.period, task_limit.burst, task_limit.weight
FROM sm.task_limit
LEFT JOIN LATERAL (
  SELECT used FROM sm.limit_use WHERE limit_use.key = task_limit.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN back ON back.key = task_limit.key
ORDER BY task_limit.key
