-- Locks the leases that may have expired, earliest first, then by number. Rows locked by other transactions are
-- skipped. still_expired.sql decides whether a lease has expired.
-- $1: now; $2: how many; $3: only those that expire after this instant.
SELECT no, epoch FROM sm.lease
WHERE expires_at > $3::bigint AND expires_at <= $1::bigint
ORDER BY expires_at, no
LIMIT $2::bigint
FOR UPDATE SKIP LOCKED
