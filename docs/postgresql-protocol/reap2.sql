-- $1, $2 the leases that reap1 locked, $3 now. In a statement of its own, so that it sees what was committed
-- before the lock. Those that a beat keeps alive are looked at again when it ends.
WITH held AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) held (no, epoch)),
alive AS MATERIALIZED (
  SELECT held.no FROM held CROSS JOIN LATERAL (
    SELECT max(expires_at) AS expires_at FROM sm.beat WHERE beat.no = held.no AND beat.epoch = held.epoch) beat
  WHERE beat.expires_at > $3::bigint
),
later AS (
  UPDATE sm.lease SET expires_at = greatest(expires_at,
    (SELECT max(beat.expires_at) FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch))
  WHERE no = ANY (ARRAY(SELECT no FROM alive))
)
SELECT no FROM held WHERE no NOT IN (SELECT no FROM alive)
