-- $1 now, $2 how many, $3 where the caller's last look ended. What others hold is passed over.
SELECT no, epoch FROM sm.lease WHERE expires_at >= $3::bigint AND expires_at <= $1::bigint
ORDER BY expires_at, no LIMIT $2::bigint FOR UPDATE SKIP LOCKED
