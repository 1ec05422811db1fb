-- Returns these limit keys, defined or not, and their debt to rates, as of the last fold.
-- $1: keys.
SELECT given.key, limited.max, coalesce(was.used, 0), (limited.key IS NOT NULL)::integer::bigint, limited.starts,
  limited.period, limited.burst, limited.weight, owes.owed, owes.at, owes.starts, owes.period
FROM unnest($1::text[]) given (key)
LEFT JOIN LATERAL (
  SELECT key, max, starts, period, burst, weight FROM sm.task_limit WHERE task_limit.key = given.key OFFSET 0) limited ON true
LEFT JOIN LATERAL (
  SELECT used FROM sm.limit_use WHERE limit_use.key = given.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN LATERAL (
  SELECT owed, at, starts, period FROM sm.rate_use WHERE rate_use.key = given.key ORDER BY version DESC LIMIT 1) owes ON true
