-- Known: defined, counted, or named by a lane with a task that has not ended, folded or not.
WITH lanes AS MATERIALIZED (
  SELECT coalesce(lane.limits, delta.limits) AS limits, delta.leases, (coalesce(was.tasks, 0) + delta.tasks > 0)::int - (lane.digest IS NOT NULL)::int AS more
  FROM (
    SELECT lane AS digest, sum(tasks) AS tasks, sum(leases)::bigint AS leases, min(limits) AS limits FROM sm.unfolded AS delta GROUP BY lane
  ) delta
  LEFT JOIN LATERAL (SELECT digest, limits FROM sm.lane WHERE lane.digest = delta.digest OFFSET 0) lane ON true
  LEFT JOIN LATERAL (SELECT tasks FROM sm.lane_use WHERE lane_use.digest = delta.digest ORDER BY version DESC LIMIT 1) was ON true
),
changes AS MATERIALIZED (
  SELECT carried.key, sum(leases)::bigint AS leases, sum(more)::bigint AS more
  FROM lanes CROSS JOIN LATERAL json_array_elements_text(limits::json) carried (key) GROUP BY carried.key
)
SELECT place, task_limit.max, coalesce(was.used, 0) - coalesce(change.leases, 0)
FROM unnest($1::text[]) WITH ORDINALITY given (key, place)
LEFT JOIN LATERAL (SELECT max FROM sm.task_limit WHERE task_limit.key = given.key OFFSET 0) task_limit ON true
LEFT JOIN LATERAL (SELECT * FROM sm.limit_use WHERE limit_use.key = given.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN changes change ON change.key = given.key
WHERE task_limit.max IS NOT NULL OR was.used - coalesce(change.leases, 0) > 0 OR coalesce(was.lanes, 0) + coalesce(change.more, 0) > 0
