-- The leases that have expired, for a transaction that only reads: earliest first, then by number.
-- $1: now; $2: how many.
SELECT lease.no
FROM (SELECT no, epoch, expires_at FROM sm.lease WHERE expires_at <= $1::bigint OFFSET 0) lease
CROSS JOIN LATERAL (
  SELECT greatest(lease.expires_at, max(beat.expires_at)) AS expires_at FROM sm.beat
  WHERE beat.no = lease.no AND beat.epoch = lease.epoch
) last
WHERE last.expires_at <= $1::bigint
ORDER BY last.expires_at, lease.no
LIMIT $2::bigint
