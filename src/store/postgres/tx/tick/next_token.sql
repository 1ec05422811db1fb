-- When the first mark ends by itself.
-- $1: the queues that are asked for, or NULL for all.
SELECT least(
  (SELECT next FROM sm.lane_order WHERE next IS NOT NULL AND $1::text[] IS NULL ORDER BY next LIMIT 1),
  (SELECT min(first.next) FROM unnest($1::text[]) asked (queue) CROSS JOIN LATERAL (
    SELECT next FROM sm.lane_order WHERE lane_order.queue = asked.queue AND next IS NOT NULL ORDER BY next LIMIT 1) first))
