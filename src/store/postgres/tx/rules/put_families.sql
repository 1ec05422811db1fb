-- Defines families or replaces their definitions.
-- $1 to $5: one array a column: prefix, most tasks, starts, period, burst.
INSERT INTO sm.family AS family (prefix, max, starts, period, burst)
SELECT prefix, max, starts, period, burst
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) given (prefix, max, starts, period, burst)
ON CONFLICT (prefix) DO UPDATE
SET max = excluded.max, starts = excluded.starts, period = excluded.period, burst = excluded.burst
