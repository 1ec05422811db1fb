-- Returns the earliest instant that a task waits for, and the earliest one after $1, or NULL. A task that is
-- due and was not promoted is locked by another transaction. Because each statement costs, it also returns, one
-- array per column: the queues that holders said they serve, the families, and what is paused. Last comes the
-- latest instant at which a key took a token.
-- due: the instant to search from.
-- $1: now, or NULL.
WITH last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
from_due AS MATERIALIZED (SELECT {due} AS due FROM last),
early AS MATERIALIZED (
  SELECT idle.due FROM unnest((SELECT early FROM last)) early (no)
  CROSS JOIN LATERAL (SELECT due FROM sm.idle WHERE idle.no = early.no OFFSET 0) idle
)
SELECT
  least(
    (SELECT idle.due FROM sm.idle WHERE idle.due >= (SELECT due FROM from_due) ORDER BY idle.due LIMIT 1),
    (SELECT min(due) FROM early)),
  least(
    (SELECT idle.due FROM sm.idle WHERE idle.due > $1::bigint ORDER BY idle.due LIMIT 1),
    (SELECT min(due) FROM early WHERE due > $1::bigint)),
  told.holders, told.queues, told.instants, told.leases,
  families.prefixes, families.maxima, families.starts, families.periods, families.bursts, families.weights,
  paused.kinds, paused.names,
  (SELECT at FROM sm.rate_use ORDER BY at DESC LIMIT 1)
FROM (
  SELECT array_agg(holder) AS holders, array_agg(queues) AS queues, array_agg(announced_at) AS instants,
    array_agg(lease) AS leases
  FROM sm.serving
) told
CROSS JOIN (
  SELECT array_agg(prefix) AS prefixes, array_agg(max) AS maxima, array_agg(starts) AS starts,
    array_agg(period) AS periods, array_agg(burst) AS bursts, array_agg(weight) AS weights
  FROM (SELECT * FROM sm.family ORDER BY prefix OFFSET 0) family
) families
CROSS JOIN (SELECT array_agg(kind) AS kinds, array_agg(name) AS names FROM sm.pause) paused
