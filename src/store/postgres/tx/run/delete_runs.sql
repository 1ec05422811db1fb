-- Deletes runs, and returns how many there were. $1 and $2: digests of namespaces, and ids.
WITH
held AS MATERIALIZED (
  SELECT run.ns, run.id
  FROM (
    SELECT DISTINCT ns, id COLLATE "C" AS id FROM unnest($1::uuid[], $2::text[]) given (ns, id) ORDER BY 1, 2
  ) given
  CROSS JOIN LATERAL (
    SELECT ns, id FROM sm.run WHERE run.ns = given.ns AND run.id = given.id FOR UPDATE
  ) run
),
gone AS (
  DELETE FROM sm.run
  WHERE ns = ANY (ARRAY(SELECT DISTINCT ns FROM held)) AND id = ANY (ARRAY(SELECT id FROM held))
    AND (ns, id) IN (SELECT ns, id FROM held)
  RETURNING 1
)
SELECT count(*) FROM gone
