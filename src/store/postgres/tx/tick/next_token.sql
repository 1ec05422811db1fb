-- Returns when the first mark expires; whether a task of a share does not sleep; and the number of grants to
-- such tasks.
-- $1: the queues, or NULL for all.
SELECT least(
  (SELECT next FROM sm.lane_order WHERE next IS NOT NULL AND $1::text[] IS NULL ORDER BY next LIMIT 1),
  (SELECT min(first.next) FROM unnest($1::text[]) asked (queue) CROSS JOIN LATERAL (
    SELECT next FROM sm.lane_order WHERE lane_order.queue = asked.queue AND next IS NOT NULL ORDER BY next LIMIT 1) first)),
  EXISTS (
    SELECT FROM (
      SELECT sm._node('shares') AS id WHERE $1::text[] IS NULL
      UNION ALL
      SELECT sm._node('shares of ' || queue) FROM unnest($1::text[]) asked (queue)
    ) given
    CROSS JOIN LATERAL (
      SELECT first FROM sm.lane_order WHERE lane_order.id = given.id ORDER BY version DESC LIMIT 1) was
    WHERE was.first IS NOT NULL),
  (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1)
