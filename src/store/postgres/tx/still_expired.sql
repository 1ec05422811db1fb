-- Returns those of the leases locked by lock_expired.sql that have no later beat that counts. The others last
-- as long as their latest beat, capped by a cancel's deadline. This is a statement of its own, so that it sees
-- what was committed before the lock.
-- $1, $2: numbers and epochs.
WITH
held AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) held (no, epoch)),
beaten AS MATERIALIZED (
  SELECT held.no
  FROM held
  CROSS JOIN LATERAL (
    SELECT expires_at, cancel_at FROM sm.lease WHERE lease.no = held.no AND lease.epoch = held.epoch OFFSET 0
  ) lease
  CROSS JOIN LATERAL (
    SELECT max(expires_at) AS expires_at FROM sm.beat WHERE beat.no = held.no AND beat.epoch = held.epoch
  ) beat
  WHERE beat.expires_at > lease.expires_at AND coalesce(lease.expires_at < lease.cancel_at, true)
),
longer AS (
  UPDATE sm.lease SET expires_at = least(cancel_at, greatest(expires_at, (
    SELECT max(beat.expires_at) FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch)))
  WHERE no = ANY (ARRAY(SELECT no FROM beaten))
)
SELECT no FROM held EXCEPT SELECT no FROM beaten
