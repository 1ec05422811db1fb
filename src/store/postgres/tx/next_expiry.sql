-- The earliest expiry of all leases, beats included, but no later than a cancel's deadline. Of the leases that are looked at first, 1,000 are looked
-- at; if all of them last longer than the next one seems to, this is when that one is looked at.
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
