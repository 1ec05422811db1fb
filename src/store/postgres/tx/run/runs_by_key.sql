-- Returns the runs with these keys, each with its place among them, counted from 1. $1 and $2: digests of
-- namespaces, and ids.
SELECT given.place, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY given (ns, id, place)
CROSS JOIN LATERAL (
  SELECT * FROM sm.run WHERE run.ns = given.ns AND run.id = given.id OFFSET 0
) run
