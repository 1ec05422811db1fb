-- Exact: no lease that a reaper looks at later than the least end of the first few can end before it.
WITH first AS MATERIALIZED (
  SELECT min(coalesce((SELECT beat.expires_at FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch ORDER BY beat.id DESC LIMIT 1), lease.expires_at)) AS least
  FROM (SELECT no, epoch, expires_at FROM sm.lease ORDER BY expires_at, no LIMIT 64) lease)
SELECT min(coalesce((SELECT beat.expires_at FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch ORDER BY beat.id DESC LIMIT 1), lease.expires_at))
FROM first CROSS JOIN LATERAL (SELECT no, epoch, expires_at FROM sm.lease WHERE lease.expires_at <= first.least OFFSET 0) lease
