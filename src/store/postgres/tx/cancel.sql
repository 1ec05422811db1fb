-- Records the deadline by which the holders of leases are to end their cancelled tasks. A deadline is never
-- extended. This statement and a renewal do not block each other, because a renewal locks only the key of the
-- row, which stays unchanged. Returns the numbers, epochs and deadlines of the leases that exist.
-- $1, $2: numbers and epochs; $3: the deadline; $4: the message.
WITH
held AS MATERIALIZED (
  SELECT lease.no, lease.epoch, lease.cancel_at
  FROM (SELECT DISTINCT no, epoch FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch) ORDER BY no, epoch) given
  CROSS JOIN LATERAL (
    SELECT no, epoch, cancel_at FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch
    FOR NO KEY UPDATE
  ) lease
),
asked AS (
  UPDATE sm.lease SET cancel_at = $3::bigint, expires_at = least(expires_at, $3::bigint), message = $4::text
  WHERE no = ANY (ARRAY(SELECT no FROM held WHERE cancel_at IS NULL OR cancel_at > $3::bigint))
)
SELECT no, epoch, least(cancel_at, $3::bigint) FROM held
