-- Records what a holder serves.
-- $1 to $6: holder, queues as JSON, announced at, length of its leases, when it stops counting, digest of the
-- queues.
INSERT INTO sm.serving (holder, digest, queues, announced_at, lease, until)
VALUES ($1::text, ($6::uuid[])[1], $2::text, $3::bigint, $4::bigint, $5::bigint)
ON CONFLICT (holder, digest) DO UPDATE
SET announced_at = excluded.announced_at, lease = excluded.lease, until = excluded.until
