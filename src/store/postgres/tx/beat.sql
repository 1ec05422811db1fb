-- The first half of a renewal: inserts a beat for each lease that exists. The second half, renew.sql, returns
-- whether the renewal holds.
-- $1, $2: numbers and epochs, each once; $3: the new expiry.
INSERT INTO sm.beat (no, epoch, expires_at)
SELECT given.no, given.epoch, $3::bigint
FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch)
CROSS JOIN LATERAL (
  SELECT FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch OFFSET 0
) lease
