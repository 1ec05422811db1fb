-- $3 the new expiry. 2 renewed, 1 busy: somebody is ending it or reaping it; no row: lost. Older beats of what was renewed go.
WITH given AS MATERIALIZED (SELECT DISTINCT no, epoch FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch)),
held AS MATERIALIZED (
  SELECT lease.* FROM (SELECT * FROM given ORDER BY no) given CROSS JOIN LATERAL (
    SELECT no, epoch FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch FOR KEY SHARE SKIP LOCKED) lease
),
old AS (
  DELETE FROM sm.beat USING (
    SELECT beat.* FROM held CROSS JOIN LATERAL (
      SELECT no, id FROM sm.beat WHERE beat.no = held.no
        AND beat.id < (SELECT id FROM sm.beat newest WHERE newest.no = held.no ORDER BY id DESC LIMIT 1) FOR UPDATE SKIP LOCKED) beat
  ) old WHERE beat.no = old.no AND beat.id = old.id
),
sooner AS (
  UPDATE sm.lease SET expires_at = $3::bigint WHERE no = ANY (ARRAY(SELECT sooner.no FROM held CROSS JOIN LATERAL (
    SELECT no FROM sm.lease WHERE lease.no = held.no AND lease.expires_at > $3::bigint FOR NO KEY UPDATE SKIP LOCKED) sooner))
)
SELECT lease.no, lease.epoch, CASE WHEN EXISTS (SELECT FROM held WHERE held.no = lease.no) THEN 2 ELSE 1 END
FROM given CROSS JOIN LATERAL (SELECT no, epoch FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch OFFSET 0) lease
