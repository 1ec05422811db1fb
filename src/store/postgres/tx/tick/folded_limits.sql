-- Returns the limit keys that ready lanes carry, defined or not, and their debt to rates, as of the last fold.
WITH named AS MATERIALIZED (
  SELECT DISTINCT carried.key
  FROM sm.lane CROSS JOIN LATERAL (
    SELECT ready FROM sm.lane_use WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
  CROSS JOIN LATERAL sm._carried(lane.limits) carried
  WHERE was.ready > 0
  UNION
  SELECT carried.key FROM (SELECT DISTINCT lane FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL) keeping
  CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = keeping.lane OFFSET 0) lane
  CROSS JOIN LATERAL sm._carried(lane.limits) carried
)
SELECT named.key, limited.max, coalesce(was.used, 0), (limited.key IS NOT NULL)::integer::bigint, limited.starts, limited.period,
  limited.burst, limited.weight, owes.owed, owes.at, owes.starts, owes.period
FROM named
LEFT JOIN LATERAL (
  SELECT key, max, starts, period, burst, weight FROM sm.task_limit WHERE task_limit.key = named.key OFFSET 0) limited ON true
LEFT JOIN LATERAL (
  SELECT used FROM sm.limit_use WHERE limit_use.key = named.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN LATERAL (
  SELECT owed, at, starts, period FROM sm.rate_use WHERE rate_use.key = named.key ORDER BY version DESC LIMIT 1) owes ON true
