-- Returns whether lanes are filed, and whether a tick would find changes that are not folded yet or marks that
-- have expired.
-- $1: now. $2: the queues, or NULL for all.
WITH clock AS MATERIALIZED (
  SELECT greatest($1::bigint, (SELECT at FROM sm.rate_use ORDER BY at DESC LIMIT 1)) AS at
)
SELECT coalesce((SELECT many FROM sm.tick ORDER BY no DESC LIMIT 1), false),
  EXISTS (SELECT FROM sm.unfolded WHERE came > 0 OR slots > 0 OR leases > 0)
    OR (SELECT count(*) = 256 FROM (SELECT FROM sm.unfolded LIMIT 256) unfolded)
    OR coalesce((
      SELECT next FROM sm.lane_order WHERE next IS NOT NULL AND $2::text[] IS NULL ORDER BY next LIMIT 1
    ) <= (SELECT at FROM clock), false)
    OR EXISTS (
      SELECT FROM unnest($2::text[]) asked (queue) CROSS JOIN LATERAL (
        SELECT FROM sm.lane_order
        WHERE lane_order.queue = asked.queue AND next <= (SELECT at FROM clock) LIMIT 1) mark)
