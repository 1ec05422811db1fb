-- Returns the open runs that have been silent longest, with a last heartbeat older than an instant. Suspended
-- runs (status 3) are not expected to send heartbeats. A lock keeps a run from recording a heartbeat before it is
-- closed. $1 the instant; $2 how many.
SELECT namespace.name, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM (
  SELECT * FROM sm.run
  WHERE heartbeat < $1::bigint AND heartbeat IS NOT NULL AND stop IS NULL AND status <> 3
  ORDER BY heartbeat
  LIMIT $2::bigint
  {lock}
) run
CROSS JOIN LATERAL (SELECT name FROM sm.namespace WHERE namespace.no = run.ns LIMIT 1) namespace
