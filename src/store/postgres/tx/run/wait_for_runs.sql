-- Locks runs, open or not, in order of their keys, and waits for those that other transactions have locked. $1
-- digests of namespaces; $2 ids.
SELECT 1::bigint
FROM (
  SELECT * FROM unnest($1::uuid[], $2::text[]) given (ns, id) ORDER BY ns, id COLLATE "C" OFFSET 0
) given
CROSS JOIN LATERAL (
  SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id FOR NO KEY UPDATE
) run
