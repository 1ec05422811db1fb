-- Returns open runs whose last heartbeat is older than an instant, the longest silent first. Suspended runs
-- (status 3) are not expected to send heartbeats. ?1 the instant; ?2 how many.
SELECT name, sm_run.id, sm_run.start, stop, status, workflow, method, running, heartbeat, user, suspended,
  nodes, attributes
FROM sm_run INDEXED BY sm_run_watched CROSS JOIN sm_namespace
WHERE heartbeat < ?1 AND heartbeat IS NOT NULL AND stop IS NULL AND status <> 3 AND no = ns
ORDER BY heartbeat
LIMIT ?2
