-- Forgets ticks, the earliest first, and returns how many. Both kinds of ticks to forget are the earliest ones,
-- up to the same number, so the larger set contains the other. If what is beyond the number is older than the
-- instant, it is in the first.
-- $1: before this instant. $2: how many at most. $3: how many of the latest stay, or NULL.
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
