-- Defines families or replaces their definitions.
-- $1 to $6: one array per column: prefix, most tasks, starts, period, burst, weight.
INSERT INTO sm.family AS family (prefix, max, starts, period, burst, weight)
SELECT prefix, max, starts, period, burst, weight
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
  given (prefix, max, starts, period, burst, weight)
ON CONFLICT (prefix) DO UPDATE
SET max = excluded.max, starts = excluded.starts, period = excluded.period, burst = excluded.burst,
  weight = excluded.weight
