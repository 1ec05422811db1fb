-- Returns these pools, as of the last fold.
-- $1: names.
SELECT pool.name, pool.slots, coalesce(was.used, 0), pool.keeps_slots, pool.description
FROM unnest($1::text[]) given (name)
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = given.name ORDER BY version DESC LIMIT 1) was ON true
