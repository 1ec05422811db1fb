-- Of services, after the tasks and before they are moved. Returns the open runs that somebody else has
-- locked: their tasks are left out.
WITH given AS MATERIALIZED (SELECT DISTINCT ns, id FROM unnest($1::uuid[], $2::text[]) given (ns, id)),
held AS MATERIALIZED (
  SELECT run.ns, run.id FROM (SELECT * FROM given ORDER BY ns, id) given CROSS JOIN LATERAL (
    SELECT ns, id FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL FOR NO KEY UPDATE SKIP LOCKED) run)
SELECT given.ns, given.id
FROM given CROSS JOIN LATERAL (SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL OFFSET 0) run
WHERE (given.ns, given.id) NOT IN (SELECT ns, id FROM held)
