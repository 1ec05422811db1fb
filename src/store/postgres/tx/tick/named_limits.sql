-- Returns the limit keys that ready lanes carry, defined or not, and their debt to rates. Counters and deltas
-- are read in one statement, hence in one snapshot.
WITH keeping AS MATERIALIZED (SELECT DISTINCT lane FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL),
lanes AS MATERIALIZED (
  SELECT limits, leases_back, has_ready
  FROM (
    SELECT limits, leases_back, ready > 0 OR digest IN (SELECT lane FROM keeping) AS has_ready FROM sm.lane_now
  ) lane
  WHERE has_ready OR leases_back > 0
),
named AS MATERIALIZED (
  SELECT carried.key, sum(lanes.leases_back * carried.count)::bigint AS back
  FROM lanes CROSS JOIN LATERAL sm._carried(lanes.limits) carried
  GROUP BY carried.key HAVING bool_or(lanes.has_ready)
)
SELECT named.key, limited.max, coalesce(was.used, 0) - named.back, (limited.key IS NOT NULL)::integer::bigint, limited.starts, limited.period,
  limited.burst, limited.weight, owes.owed, owes.at, owes.starts, owes.period
FROM named
LEFT JOIN LATERAL (
  SELECT key, max, starts, period, burst, weight FROM sm.task_limit WHERE task_limit.key = named.key OFFSET 0) limited ON true
LEFT JOIN LATERAL (
  SELECT used FROM sm.limit_use WHERE limit_use.key = named.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN LATERAL (
  SELECT owed, at, starts, period FROM sm.rate_use WHERE rate_use.key = named.key ORDER BY version DESC LIMIT 1) owes ON true
