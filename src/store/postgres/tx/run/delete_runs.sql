-- Deletes runs, and returns how many there were. $1 and $2: namespaces and ids.
WITH gone AS (
  DELETE FROM sm.run
  USING unnest($1::text[], $2::text[]) given (name, id)
  CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
  WHERE run.ns = namespace.no AND run.id = given.id
  RETURNING 1
)
SELECT count(*) FROM gone
