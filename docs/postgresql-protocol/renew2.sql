-- 2 renewed, 1 busy: somebody is ending it or reaping it; no row: lost. Of what was renewed, the latest beat
-- stays.
WITH given AS MATERIALIZED (SELECT DISTINCT no, epoch FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch)),
held AS MATERIALIZED (
  SELECT lease.* FROM (SELECT * FROM given ORDER BY no) given CROSS JOIN LATERAL (
    SELECT no, epoch FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch FOR KEY SHARE SKIP LOCKED) lease
),
latest AS MATERIALIZED (
  SELECT held.no, held.epoch, beat.expires_at, beat.id FROM held CROSS JOIN LATERAL (
    SELECT expires_at, id FROM sm.beat WHERE beat.no = held.no AND beat.epoch = held.epoch
    ORDER BY expires_at DESC, id DESC LIMIT 1) beat
),
old AS MATERIALIZED (
  SELECT beat.at FROM latest CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.beat WHERE beat.no = latest.no
      AND (beat.epoch < latest.epoch OR (beat.epoch = latest.epoch AND (beat.expires_at, beat.id) < (latest.expires_at, latest.id)))
    FOR UPDATE SKIP LOCKED) beat
),
gone AS (DELETE FROM sm.beat WHERE ctid = ANY (ARRAY(SELECT at FROM old)))
SELECT lease.no, lease.epoch, CASE WHEN lease.no IN (SELECT no FROM latest) THEN 2 ELSE 1 END
FROM given CROSS JOIN LATERAL (SELECT no, epoch FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch OFFSET 0) lease
