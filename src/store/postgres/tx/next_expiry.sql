-- Returns the earliest expiry of all leases, including beats, capped by a cancel's deadline. Reads the first
-- 1,000 leases. If all of them last longer than the stored expiry of the next one, returns that stored expiry,
-- as the instant at which to look at that lease. Then the earliest stored expiry, and how many entries of the
-- index this transaction has walked over, dead ones included, with those of the last seconds before it.
-- $1, $2: looks at leases with a stored expiry after $1 and until $2.
WITH
first AS MATERIALIZED (
  SELECT no, epoch, expires_at, cancel_at, row_number() OVER () AS nth
  FROM (
    SELECT no, epoch, expires_at, cancel_at FROM sm.lease
    WHERE expires_at > $1::bigint AND expires_at <= $2::bigint
    ORDER BY expires_at LIMIT 1001
  ) lease
)
SELECT least(
    (
      SELECT min(least(first.cancel_at, greatest(first.expires_at, beat.expires_at)))
      FROM first
      CROSS JOIN LATERAL (
        SELECT max(expires_at) AS expires_at FROM sm.beat WHERE beat.no = first.no AND beat.epoch = first.epoch
      ) beat
      WHERE nth <= 1000
    ),
    (SELECT expires_at FROM first WHERE nth = 1001)
  ),
  min(expires_at), pg_stat_get_xact_tuples_returned('sm.lease_expiry'::regclass)
FROM first
