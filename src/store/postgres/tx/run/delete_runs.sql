-- Deletes runs, and returns how many existed. $1 and $2: digests of namespaces, and ids.
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
gone AS (DELETE FROM sm.run USING held WHERE run.ns = held.ns AND run.id = held.id RETURNING 1)
SELECT count(*) FROM gone
