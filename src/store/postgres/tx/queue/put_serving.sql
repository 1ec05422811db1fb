-- Notes what a holder serves.
-- $1 to $5: holder, queues as a JSON array or NULL, told at, length of its leases, when it stops counting.
INSERT INTO sm.serving (holder, queues, told_at, lease, until)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint)
ON CONFLICT (holder) DO UPDATE
SET queues = excluded.queues, told_at = excluded.told_at, lease = excluded.lease, until = excluded.until
