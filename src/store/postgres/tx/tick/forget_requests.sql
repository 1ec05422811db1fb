-- Deletes ticks, earliest first, and returns how many. Both conditions select the earliest ticks, up to the
-- same number, so the larger set contains the other. If the ticks beyond the number are older than the instant,
-- the first set contains them.
-- $1: delete ticks before this instant. $2: the most to delete. $3: how many of the latest ticks to keep, or
-- NULL.
WITH
beyond AS MATERIALIZED (
  SELECT at, id FROM sm.request WHERE at >= $1::bigint AND $3::bigint IS NOT NULL
  ORDER BY at DESC, id DESC OFFSET $3::bigint LIMIT 1
),
old AS MATERIALIZED (
  (SELECT id FROM sm.request WHERE at < $1::bigint ORDER BY at, id LIMIT $2::bigint)
  UNION
  (SELECT request.id FROM beyond CROSS JOIN LATERAL (
     SELECT id FROM sm.request WHERE (request.at, request.id) <= (beyond.at, beyond.id)
     ORDER BY at, id LIMIT $2::bigint) request)
),
gone AS (DELETE FROM sm.request WHERE id = ANY (ARRAY(SELECT id FROM old)))
SELECT count(*) FROM old
