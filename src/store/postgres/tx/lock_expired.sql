-- Locks the leases that may have expired, earliest first, then by number. What others hold is passed over.
-- Whether a lease has expired is what still_expired.sql tells.
-- $1: now; $2: how many.
SELECT no, epoch FROM sm.lease
WHERE expires_at <= $1::bigint
ORDER BY expires_at, no
LIMIT $2::bigint
FOR UPDATE SKIP LOCKED
