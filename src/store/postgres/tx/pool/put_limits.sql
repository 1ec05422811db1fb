-- Defines limits or changes them. What counts against them is counted apart, and stays.
-- $1, $2: keys and maxima.
INSERT INTO sm.task_limit AS task_limit (key, max)
SELECT key, max FROM unnest($1::text[], $2::bigint[]) given (key, max)
ON CONFLICT (key) DO UPDATE SET max = excluded.max
