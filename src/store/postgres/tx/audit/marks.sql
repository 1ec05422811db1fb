-- Returns each mark, with everything that decides whether it holds, from the counters. First the limit key that
-- the group waits for, if any, in the columns of limits_in_use. Then the queue, the pools of the class, as a
-- JSON array of names and slots, the pool that is too full, the cause, a JSON object or NULL, and when the mark
-- expires. Then the pools, one array per column: name, slots, used. Then families, what is paused, and the
-- clock, in the columns of next_due. One statement, hence one snapshot.
WITH
beside AS MATERIALIZED (
  SELECT families.*, paused.*, (SELECT at FROM sm.rate_use ORDER BY at DESC LIMIT 1) AS clock
  FROM (
    SELECT array_agg(prefix) AS prefixes, array_agg(max) AS maxima, array_agg(starts) AS starts,
      array_agg(period) AS periods, array_agg(burst) AS bursts, array_agg(weight) AS weights
    FROM sm.family
  ) families
  CROSS JOIN (SELECT array_agg(kind) AS kinds, array_agg(name) AS names FROM sm.pause) paused
)
SELECT mark.key, limited.max, coalesce(was.used, 0), (limited.key IS NOT NULL)::integer::bigint, limited.starts,
  limited.period, limited.burst, limited.weight, owes.owed, owes.at, owes.starts, owes.period,
  mark.queue, class.about, mark.pool, CASE WHEN class.id <> mark.id THEN mark.about END, mark.next,
  pools.names, pools.slots, pools.used,
  beside.prefixes, beside.maxima, beside.starts, beside.periods, beside.bursts, beside.weights, beside.kinds, beside.names,
  beside.clock
FROM sm.lane_order mark
CROSS JOIN LATERAL (
  SELECT id, parent, turn FROM sm.lane_order
  WHERE lane_order.id = CASE WHEN starts_with(mark.about, '[') THEN mark.id ELSE mark.parent END
  ORDER BY version DESC LIMIT 1) holder
CROSS JOIN LATERAL (
  SELECT id, about FROM sm.lane_order
  WHERE lane_order.id = CASE WHEN holder.turn IS NULL THEN holder.id ELSE holder.parent END
  ORDER BY version DESC LIMIT 1) class
LEFT JOIN LATERAL (
  SELECT key, max, starts, period, burst, weight FROM sm.task_limit WHERE task_limit.key = mark.key OFFSET 0) limited ON true
LEFT JOIN LATERAL (
  SELECT used FROM sm.limit_use WHERE limit_use.key = mark.key ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN LATERAL (
  SELECT owed, at, starts, period FROM sm.rate_use WHERE rate_use.key = mark.key ORDER BY version DESC LIMIT 1) owes ON true
CROSS JOIN LATERAL (
  SELECT array_agg(pool.name) AS names, array_agg(pool.slots) AS slots, array_agg(pool.used) AS used
  FROM json_array_elements(class.about::json) needs (need)
  CROSS JOIN LATERAL (
    SELECT pool.name, pool.slots, coalesce((
      SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1), 0) AS used
    FROM sm.pool WHERE pool.name = needs.need ->> 0 OFFSET 0) pool
) pools
CROSS JOIN beside
WHERE mark.sleeps
