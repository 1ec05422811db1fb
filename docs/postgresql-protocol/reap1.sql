SELECT no, epoch FROM sm.lease WHERE expires_at <= $1::bigint ORDER BY expires_at, no LIMIT $2::bigint FOR UPDATE SKIP LOCKED
