-- The limit keys that ready lanes carry, whether or not they are defined, with what they owe to rates. Counters and deltas in one
-- statement, hence in one snapshot.
WITH lanes AS MATERIALIZED (
  SELECT limits, ready, leases_back FROM sm.lane_now WHERE ready > 0 OR leases_back > 0
),
named AS MATERIALIZED (
  SELECT carried.key, sum(lanes.leases_back)::bigint AS back
  FROM lanes CROSS JOIN LATERAL json_array_elements_text(lanes.limits::json) carried (key)
  GROUP BY carried.key HAVING bool_or(lanes.ready > 0)
)
SELECT named.key, limited.max, coalesce(was.used, 0) - named.back, (limited.key IS NOT NULL)::integer::bigint, limited.starts, limited.period,
  limited.burst, owes.owed, owes.at, owes.starts, owes.period
FROM named
LEFT JOIN LATERAL (
  SELECT key, max, starts, period, burst FROM sm.task_limit WHERE task_limit.key = named.key OFFSET 0) limited ON true
LEFT JOIN LATERAL (
  SELECT used FROM sm.limit_use WHERE limit_use.key = named.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN LATERAL (
  SELECT owed, at, starts, period FROM sm.rate_use WHERE rate_use.key = named.key ORDER BY version DESC LIMIT 1) owes ON true
