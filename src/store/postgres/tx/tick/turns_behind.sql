-- For filed lanes: returns the first lanes of contenders that do not sleep, in the order of their turns, in the
-- columns of ready_lanes. More columns follow: the place of the lane's first task, whether the contender has
-- other lanes, the level and the turn, and whether more contenders follow.
-- Each class is read from its least turn on, and each yields a share of the next contenders. If there may be
-- more, the result ends at the last contender of that share. Equal turns are ordered by pool, then by share.
-- $1 to $4: the turn after which they begin: level and turn, pool or NULL, share, place. $5: the most
-- contenders. $6: the queues, or NULL for all.
WITH
queues AS MATERIALIZED (
  SELECT was.id, was.first FROM unnest($6::text[]) asked (queue)
  CROSS JOIN LATERAL (
    SELECT id, first FROM sm.lane_order WHERE lane_order.id = sm._node('shares of ' || asked.queue)
    ORDER BY version DESC LIMIT 1) was
  WHERE was.first IS NOT NULL
  UNION ALL
  SELECT child.id, child.first
  FROM (
    SELECT id, first FROM sm.lane_order WHERE lane_order.id = sm._node('shares') ORDER BY version DESC LIMIT 1) node
  CROSS JOIN LATERAL (
    SELECT id, first FROM sm.lane_order WHERE parent = node.id AND NOT sleeps AND first >= node.first OFFSET 0) child
  WHERE $6::text[] IS NULL
),
classes AS MATERIALIZED (
  SELECT child.id, child.first, child.pool,
    CASE WHEN child.pool < $2::text THEN repeat(chr(1114111), 200) WHEN child.pool = $2::text THEN $3::text ELSE '' END
      AS from_share,
    CASE WHEN child.pool = $2::text THEN $4::bigint[] ELSE '{}' END AS from_place
  FROM queues node CROSS JOIN LATERAL (
    SELECT id, first, (about::json #>> '{0,0}') COLLATE "C" AS pool FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first OFFSET 0) child
),
of_class AS MATERIALIZED (
  SELECT greatest(16, 2 * $5::bigint / greatest(1, count(*))) + 1 AS most FROM classes
),
contenders AS MATERIALIZED (
  SELECT child.*, row_number() OVER (ORDER BY child.turn, classes.pool, child.share, child.first) AS nth
  FROM classes CROSS JOIN LATERAL (
    SELECT id, turn, share, first, row_number() OVER (ORDER BY turn, share, first) AS of_class FROM (
      SELECT id, turn, share, first FROM sm.lane_order
      WHERE parent = classes.id AND turn IS NOT NULL AND first IS NOT NULL AND turn >= classes.first
        AND (turn, share, first) > ($1::bigint[], classes.from_share, classes.from_place)
      ORDER BY turn, share, first LIMIT (SELECT most FROM of_class)) behind
  ) child
),
cut AS MATERIALIZED (
  SELECT least($5::bigint, min(nth) FILTER (WHERE of_class = (SELECT most FROM of_class))) AS last, count(*) AS count
  FROM contenders
),
found AS MATERIALIZED (SELECT contenders.* FROM contenders CROSS JOIN cut WHERE nth <= cut.last)
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, greatest(was.ready, 1), was.bound, was.early, found.first,
  EXISTS (SELECT FROM sm.lane_order WHERE parent = head.parent AND NOT sleeps AND first > found.first)
    OR EXISTS (SELECT FROM sm.lane_order WHERE parent = found.id AND NOT sleeps AND first > found.first),
  found.turn, (SELECT count > last OR EXISTS (
    SELECT FROM contenders WHERE nth = cut.last AND of_class = (SELECT most FROM of_class)) FROM cut)
FROM found
CROSS JOIN LATERAL (
  SELECT id FROM sm.lane_order WHERE parent = found.id AND NOT sleeps AND first = found.first OFFSET 0) of_head
CROSS JOIN LATERAL (
  SELECT id, parent FROM sm.lane_order WHERE parent = of_head.id AND NOT sleeps AND first = found.first OFFSET 0) head
CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = head.id OFFSET 0) lane
CROSS JOIN LATERAL (
  SELECT ready, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = head.id ORDER BY version DESC LIMIT 1) was
ORDER BY found.nth
