-- Notes how far runs reach before and after the nodes of a level, where that is farther than any did before.
-- $1 to $5: names of namespaces, levels, the bits above each, and how far before and after.
INSERT INTO sm.level AS level (ns, bit, mask, before, after)
SELECT namespace.no, bit, mask, before, after
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
  given (name, bit, mask, before, after)
CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
ON CONFLICT (ns, bit) DO UPDATE
SET before = greatest(level.before, excluded.before), after = greatest(level.after, excluded.after)
WHERE excluded.before > level.before OR excluded.after > level.after
