-- The second half of a renewal, after beat.sql. Returns the numbers and epochs of the leases that exist,
-- whether each is renewed, and the deadline if its task was cancelled. A lease that is not renewed is locked by
-- a transaction that ends or reaps it. Of the beats of a renewed lease, only the latest is kept.
-- $1, $2: numbers and epochs, each once.
WITH
given AS MATERIALIZED (
  SELECT no, epoch FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch) ORDER BY no
),
held AS MATERIALIZED (
  SELECT lease.*
  FROM given
  CROSS JOIN LATERAL (
    SELECT no, epoch FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch
    FOR KEY SHARE SKIP LOCKED
  ) lease
),
latest AS MATERIALIZED (
  SELECT held.no, held.epoch, beat.expires_at, beat.id
  FROM held
  CROSS JOIN LATERAL (
    SELECT expires_at, id FROM sm.beat
    WHERE beat.no = held.no AND beat.epoch = held.epoch
    ORDER BY expires_at DESC, id DESC
    LIMIT 1
  ) beat
),
-- A beat is never updated, so its ctid is as good as its key. At a higher isolation level the server would
-- refuse to delete a beat that another renewal has deleted since.
old AS MATERIALIZED (
  SELECT beat.at
  FROM (SELECT * FROM latest WHERE current_setting('transaction_isolation') = 'read committed') latest
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.beat
    WHERE beat.no = latest.no AND (beat.epoch < latest.epoch OR (
      beat.epoch = latest.epoch AND (beat.expires_at, beat.id) < (latest.expires_at, latest.id)))
    FOR UPDATE SKIP LOCKED
  ) beat
),
gone AS (DELETE FROM sm.beat WHERE ctid = ANY (ARRAY(SELECT at FROM old)))
-- Grouped and not looked up in `latest`: if `work_mem` is small, the server would walk it for each lease.
SELECT no, epoch, bool_or(is_renewed), max(cancel_at)
FROM (
  SELECT lease.no, lease.epoch, false AS is_renewed, lease.cancel_at
  FROM given
  CROSS JOIN LATERAL (
    SELECT no, epoch, cancel_at FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch OFFSET 0
  ) lease
  UNION ALL
  SELECT no, epoch, true, NULL FROM latest
) found
GROUP BY no, epoch
