-- Known: defined, counted, or named by a lane, folded or not.
WITH more AS MATERIALIZED (
  SELECT carried.key, sum(delta.leases)::bigint AS leases, bool_or(lane.digest IS NULL AND delta.tasks > 0) AS new
  FROM sm.unfolded AS delta LEFT JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = delta.lane OFFSET 0) lane ON true
  CROSS JOIN LATERAL json_array_elements_text(coalesce(lane.limits, delta.limits)::json) carried (key)
  GROUP BY carried.key)
SELECT given.key, task_limit.max, coalesce(was.used, 0) - coalesce(more.leases, 0), place
FROM unnest($1::text[]) WITH ORDINALITY given (key, place)
LEFT JOIN LATERAL (SELECT max FROM sm.task_limit WHERE task_limit.key = given.key OFFSET 0) task_limit ON true
LEFT JOIN LATERAL (SELECT * FROM sm.limit_use WHERE limit_use.key = given.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN LATERAL (SELECT * FROM more WHERE more.key = given.key) more ON true
WHERE task_limit.max IS NOT NULL OR was.used <> 0 OR was.lanes > 0 OR more.new
