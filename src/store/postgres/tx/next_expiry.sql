-- Returns the earliest expiry of all leases, including beats, capped by a cancel's deadline. Reads the first
-- 1,000 leases. If all of them last longer than the stored expiry of the next one, returns that stored expiry,
-- as the instant at which to look at that lease.
WITH
first AS MATERIALIZED (SELECT no, epoch, expires_at, cancel_at FROM sm.lease ORDER BY expires_at, no LIMIT 1000)
SELECT least(
  (
    SELECT min(least(first.cancel_at, greatest(first.expires_at, beat.expires_at)))
    FROM first
    CROSS JOIN LATERAL (
      SELECT max(expires_at) AS expires_at FROM sm.beat WHERE beat.no = first.no AND beat.epoch = first.epoch
    ) beat
  ),
  (SELECT expires_at FROM sm.lease ORDER BY expires_at, no OFFSET 1000 LIMIT 1)
)
