-- Inserts runs or replaces them as a whole, in the order of their keys. No run is given twice, and the
-- namespaces are recorded already. $1 to $14: one array per column, in the order of `given`.
INSERT INTO sm.run AS run (
  ns, start, id, stop, node, status, method, running, heartbeat, workflow, "user", suspended, nodes, attributes
)
SELECT given.ns, given.start, given.id, given.stop, given.node, given.status, given.method, given.running,
  given.heartbeat, given.workflow, given."user", given.suspended, given.nodes, given.attributes
FROM unnest(
  $1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
  $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[]
) given (
  ns, start, id, stop, node, status, method, running, heartbeat, workflow, "user", suspended, nodes, attributes
)
ORDER BY given.ns, given.id COLLATE "C"
ON CONFLICT (ns, id) DO UPDATE SET start = excluded.start, stop = excluded.stop, node = excluded.node,
  status = excluded.status, method = excluded.method, running = excluded.running,
  heartbeat = excluded.heartbeat, workflow = excluded.workflow, "user" = excluded."user",
  suspended = excluded.suspended, nodes = excluded.nodes, attributes = excluded.attributes
