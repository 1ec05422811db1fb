-- In a statement of its own, after the leases are locked. Those that a beat keeps alive are looked at again when it ends.
WITH held AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) held (no, epoch)),
beats AS MATERIALIZED (
  SELECT held.no, beat.expires_at FROM held CROSS JOIN LATERAL (
    SELECT expires_at FROM sm.beat WHERE beat.no = held.no AND beat.epoch = held.epoch ORDER BY beat.id DESC LIMIT 1) beat
  WHERE beat.expires_at > $3::bigint
),
later AS (UPDATE sm.lease SET expires_at = beats.expires_at FROM beats WHERE lease.no = beats.no)
SELECT no FROM held WHERE NOT EXISTS (SELECT FROM beats WHERE beats.no = held.no)
