-- Notes heartbeats of runs that are open, and returns which of those given were, counted from 1. A heartbeat
-- never goes back. $1 to $3: namespaces, ids and instants; no run twice.
WITH
given AS MATERIALIZED (
  SELECT place, given.at, run.ns, run.start, run.id
  FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY given (name, id, at, place)
  CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
  CROSS JOIN LATERAL (
    SELECT ns, start, id FROM sm.run
    WHERE run.ns = namespace.no AND run.id = given.id AND run.stop IS NULL
    OFFSET 0
  ) run
),
alive AS (
  UPDATE sm.run SET heartbeat = greatest(run.heartbeat, given.at)
  FROM given
  WHERE run.ns = given.ns AND run.start = given.start AND run.id = given.id
)
SELECT place FROM given
