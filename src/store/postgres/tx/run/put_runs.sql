-- Inserts runs or replaces them as a whole. No run is given twice; the namespaces have numbers.
-- $1 to $13: one array a column, in the order of `given`.
INSERT INTO sm.run AS run (
  ns, start, id, stop, node, status, method, running, heartbeat, workflow, "user", suspended, attributes
)
SELECT namespace.no, start, id, stop, node, status, method, running, heartbeat, workflow, given."user",
  suspended, attributes
FROM unnest(
  $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
  $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[]
) given (
  name, start, id, stop, node, status, method, running, heartbeat, workflow, "user", suspended, attributes
)
CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
ON CONFLICT (ns, id) DO UPDATE SET start = excluded.start, stop = excluded.stop, node = excluded.node,
  status = excluded.status, method = excluded.method, running = excluded.running,
  heartbeat = excluded.heartbeat, workflow = excluded.workflow, "user" = excluded."user",
  suspended = excluded.suspended, attributes = excluded.attributes
