-- Returns the tasks that promotion would make ready if no row were locked, in its order, and what comes after
-- them.
-- $1: now. $2: the most tasks.
WITH last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
from_due AS MATERIALIZED (SELECT least(last.due, (SELECT min(due) FROM sm.unfolded)) AS due FROM last),
early AS MATERIALIZED (
  SELECT idle.* FROM unnest((SELECT early FROM last)) asked (no) CROSS JOIN LATERAL (
    SELECT due, rank, logical_date, map_index, no, lane, ready_at FROM sm.idle
    WHERE idle.no = asked.no OFFSET 0) idle
  WHERE idle.due IS NOT NULL
),
page AS MATERIALIZED (
  SELECT due, rank, logical_date, map_index, no, lane, ready_at FROM sm.idle
  WHERE idle.due >= (SELECT due FROM from_due) AND idle.due <= $1::bigint
  ORDER BY due, rank, logical_date, map_index, no LIMIT $2::bigint
)
SELECT due, rank, logical_date, map_index, no, lane, ready_at FROM (
  SELECT * FROM page UNION SELECT * FROM early WHERE due <= $1::bigint
) overdue
ORDER BY due, rank, logical_date, map_index, no LIMIT $2::bigint
