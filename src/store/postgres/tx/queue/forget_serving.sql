-- Forgets who stopped counting, the earliest first.
-- $1: at this instant or before. $2: a holder that stays.
DELETE FROM sm.serving WHERE holder = ANY (ARRAY(
  SELECT holder FROM sm.serving WHERE until <= $1::bigint AND holder <> $2::text ORDER BY until, holder LIMIT 64))
