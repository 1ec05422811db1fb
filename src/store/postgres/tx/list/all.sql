-- Returns every task that was seen, with its position.
WITH seen AS (
  {seen}
)
SELECT seen.no, true, row_number() OVER () AS nth, seen.lane::text, seen.a, seen.b, seen.c, seen.d,
  seen.t, seen.u, seen.v
FROM seen
LIMIT $1::bigint
