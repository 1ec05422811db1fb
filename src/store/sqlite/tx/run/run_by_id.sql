-- Returns the run of a namespace with an id. ?1 the namespace's number; ?2 the id.
SELECT name, sm_run.id, sm_run.start, stop, status, workflow, method, running, heartbeat, user, suspended,
  nodes, attributes
FROM sm_run CROSS JOIN sm_namespace
WHERE ns = ?1 AND id = ?2 AND no = ?1
