-- The runs with these keys, each with its place among them, counted from 1. $1 and $2: namespaces and ids.
SELECT given.place, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.attributes
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY given (name, id, place)
CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
CROSS JOIN LATERAL (
  SELECT * FROM sm.run WHERE run.ns = namespace.no AND run.id = given.id OFFSET 0
) run
