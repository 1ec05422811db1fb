-- After 3 s of waiting for the tick lock: its holder, if it bears the mark of a tick of a store. $1, $2: the mark's two numbers.
SELECT pg_terminate_backend(held.pid) FROM pg_locks held
WHERE held.relation = 'sm.tick_lock'::regclass AND held.mode = 'ExclusiveLock' AND held.granted
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND EXISTS (SELECT FROM pg_locks mark WHERE mark.pid = held.pid AND mark.locktype = 'advisory' AND mark.granted
    AND mark.classid = $1::bigint::oid AND mark.objid = $2::bigint::oid)
