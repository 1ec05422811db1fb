-- Of the store's own calls. A run that somebody else has locked is passed over. open_runs follows: this
-- statement's view does not have what was closed before it got the locks.
WITH given AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) given (ns, id, at)),
held AS MATERIALIZED (
  SELECT given.at, run.* FROM (SELECT * FROM given ORDER BY ns, id) given CROSS JOIN LATERAL (
    SELECT ns, start, id FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL
    FOR NO KEY UPDATE SKIP LOCKED) run)
UPDATE sm.run SET heartbeat = greatest(run.heartbeat, held.at) FROM held
WHERE run.ns = held.ns AND run.start = held.start AND run.id = held.id
