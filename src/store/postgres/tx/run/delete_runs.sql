-- Deletes runs, and returns how many there were. $1 and $2: namespaces and ids.
WITH
given AS MATERIALIZED (
  SELECT namespace.no AS ns, given.id FROM unnest($1::text[], $2::text[]) given (name, id)
  CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
),
gone AS (
  DELETE FROM sm.run
  WHERE ns = ANY (ARRAY(SELECT DISTINCT ns FROM given)) AND id = ANY (ARRAY(SELECT id FROM given))
    AND (ns, id) IN (SELECT ns, id FROM given)
  RETURNING 1
)
SELECT count(*) FROM gone
