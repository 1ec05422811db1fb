-- Deletes rows that stopped counting, earliest first. No one else changes these rows, because that takes the
-- tick lock.
-- $1: at this instant or before. $2, $3: holder and digest of a row that stays.
DELETE FROM sm.serving WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM sm.serving WHERE until <= $1::bigint AND (holder, digest) <> ($2::text, ($3::uuid[])[1])
  ORDER BY until, holder, digest LIMIT 64))
