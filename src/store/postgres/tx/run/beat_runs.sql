-- Notes heartbeats of runs that are open. A heartbeat never goes back. A run that somebody else has locked is
-- passed over: it is being written or closed. $1 to $3: digests of namespaces, ids and instants; no run twice.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) given (ns, id, at)
),
held AS MATERIALIZED (
  SELECT given.at, run.ns, run.id
  FROM given
  CROSS JOIN LATERAL (
    SELECT ns, id FROM sm.run
    WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
  ) run
)
UPDATE sm.run SET heartbeat = greatest(run.heartbeat, held.at)
FROM held
WHERE run.ns = held.ns AND run.id = held.id
