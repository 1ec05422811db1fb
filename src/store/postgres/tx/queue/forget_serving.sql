-- Forgets what stopped counting, the earliest first. Nobody else changes these rows: that takes the tick lock.
-- $1: at this instant or before. $2, $3: holder and digest of a note that stays.
DELETE FROM sm.serving WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM sm.serving WHERE until <= $1::bigint AND (holder, digest) <> ($2::text, ($3::uuid[])[1])
  ORDER BY until, holder, digest LIMIT 64))
