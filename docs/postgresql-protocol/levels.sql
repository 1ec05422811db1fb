-- In place of ON CONFLICT DO UPDATE WHERE, which locks a row that it leaves alone.
INSERT INTO sm.level (ns, bit, mask, before, after)
SELECT given.ns, given.bit, given.mask, given.before, given.after
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) given (ns, bit, mask, before, after)
LEFT JOIN LATERAL (
  SELECT max(before) AS before, max(after) AS after FROM sm.level WHERE level.ns = given.ns AND level.bit = given.bit) was ON true
WHERE given.before > coalesce(was.before, -1) OR given.after > coalesce(was.after, -1)
