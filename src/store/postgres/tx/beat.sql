-- The first half of a renewal: a beat for each lease that there is. Whether the renewal holds is what the
-- second half answers, renew.sql.
-- $1, $2: numbers and epochs, each once; $3: until when.
INSERT INTO sm.beat (no, epoch, expires_at)
SELECT given.no, given.epoch, $3::bigint
FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch)
CROSS JOIN LATERAL (
  SELECT FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch OFFSET 0
) lease
