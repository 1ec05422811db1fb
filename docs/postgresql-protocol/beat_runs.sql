-- Of the store's own calls. A run that somebody else has locked is passed over; the answer is that it is
-- open.
WITH given AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY given (ns, id, at, place)),
held AS MATERIALIZED (
  SELECT given.at, run.* FROM (SELECT * FROM given ORDER BY ns, id) given CROSS JOIN LATERAL (
    SELECT ns, start, id FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL FOR NO KEY UPDATE SKIP LOCKED) run),
alive AS (UPDATE sm.run SET heartbeat = greatest(run.heartbeat, held.at) FROM held
  WHERE run.ns = held.ns AND run.start = held.start AND run.id = held.id)
SELECT place FROM given CROSS JOIN LATERAL (SELECT FROM sm.run WHERE run.ns = given.ns AND run.id = given.id AND run.stop IS NULL OFFSET 0) run
