-- After 3 s of waiting for the tick lock: ends its holder if that is a tick of a store (definitions hold the
-- lock in another mode) and if the server has been sending an answer to it for 3 s, which is what no timeout
-- ends.
SELECT pg_terminate_backend(held.pid)
FROM pg_locks held JOIN pg_stat_activity activity ON activity.pid = held.pid
WHERE held.relation = 'sm.tick_lock'::regclass AND held.mode = 'ExclusiveLock' AND held.granted
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND activity.wait_event = 'ClientWrite' AND activity.state_change < clock_timestamp() - interval '3 s'
