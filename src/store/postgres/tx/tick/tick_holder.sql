-- For a caller that has waited 3 s for the tick lock. Finds its holder, if that is a tick of a store whose
-- statement began 3 s ago and to which the server is still sending, because no timeout ends that. (Definitions
-- hold the lock in another mode.) It also finds a holder that waits for the rest of a message, which the server
-- counts as active, not as idle. A healthy tick may also be sent a long result. So the holder is terminated
-- only if an earlier look found it in the same statement. Returns what to pass to the next look.
-- $1: what the earlier look returned, or NULL.
SELECT seen.holder, CASE WHEN seen.holder = $1::text THEN pg_terminate_backend(seen.pid) END
FROM (
  SELECT held.pid, concat(held.pid, ' ', activity.state_change) AS holder
  FROM pg_locks held JOIN pg_stat_activity activity ON activity.pid = held.pid
  WHERE held.relation = 'sm.tick_lock'::regclass AND held.mode = 'ExclusiveLock' AND held.granted
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND activity.state = 'active' AND activity.wait_event IN ('ClientRead', 'ClientWrite')
    AND activity.state_change < clock_timestamp() - interval '3 s'
  OFFSET 0
) seen
