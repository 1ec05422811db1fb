-- Locks runs that are open, in order of their keys, and returns the places, counted from 1, of those that
-- somebody else has locked. $1 digests of namespaces; $2 ids.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY given (ns, id, place)
  ORDER BY ns, id COLLATE "C"
),
held AS MATERIALIZED (
  SELECT given.place
  FROM given
  CROSS JOIN LATERAL (
    SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
  ) run
)
SELECT given.place
FROM given
CROSS JOIN LATERAL (
  SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL OFFSET 0
) run
WHERE (given.place IN (SELECT place FROM held)) IS NOT TRUE
