-- Locks open runs, in order of their keys, and returns the places, counted from 1, of those that other
-- transactions have locked. Not `stop IS NULL`, because the index of open runs does not find a run by its id.
-- $1 digests of namespaces; $2 ids.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY given (ns, id, place)
  ORDER BY ns, id COLLATE "C"
),
held AS MATERIALIZED (
  SELECT given.place
  FROM given
  CROSS JOIN LATERAL (
    SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND num_nulls(run.stop) = 1
    FOR NO KEY UPDATE SKIP LOCKED
  ) run
)
SELECT given.place
FROM given
CROSS JOIN LATERAL (
  SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND num_nulls(run.stop) = 1 OFFSET 0
) run
EXCEPT
SELECT place FROM held
