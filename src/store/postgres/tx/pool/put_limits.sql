-- Defines limits or replaces their definitions. What counts against them is stored separately, and stays.
-- $1 to $6: one array per column: key, most tasks, starts, period, burst, weight.
INSERT INTO sm.task_limit AS task_limit (key, max, starts, period, burst, weight)
SELECT key, max, starts, period, burst, weight
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
  given (key, max, starts, period, burst, weight)
ON CONFLICT (key) DO UPDATE
SET max = excluded.max, starts = excluded.starts, period = excluded.period, burst = excluded.burst,
  weight = excluded.weight
