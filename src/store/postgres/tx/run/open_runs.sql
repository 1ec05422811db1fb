-- Returns the places of the open ones of these runs, counted from 1. Not `stop IS NULL`, because the index of
-- open runs does not find a run by its id. $1 and $2: digests of namespaces, and ids.
SELECT given.place
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY given (ns, id, place)
CROSS JOIN LATERAL (
  SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND num_nulls(run.stop) = 1 OFFSET 0
) run
