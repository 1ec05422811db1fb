-- For filed lanes: returns lanes that do not sleep, by their first ready tasks, in the columns of ready_lanes.
-- Two more columns follow: the place of the lane's first task, and the place after which the other lanes begin,
-- or NULL if there are none.
-- Each level of the tree is read from the place under which its node is filed. A node whose place is not after
-- $1 may have lanes after $1, so all such nodes are read. Of the other nodes, each level reads a share. If
-- there may be more, the result ends at the last place of that share.
-- $1: the place after which the lanes begin: rank, logical date, map index, number. $2: the most lanes. $3: the
-- queues, or NULL for all.
WITH
queues AS MATERIALIZED (
  SELECT was.id, was.first, NULL::bigint AS nth, 0::bigint AS most FROM unnest($3::text[]) asked (queue)
  CROSS JOIN LATERAL (
    SELECT id, first FROM sm.lane_order WHERE lane_order.id = sm._node('queue ' || asked.queue)
    ORDER BY version DESC LIMIT 1) was
  WHERE was.first IS NOT NULL
  UNION ALL
  SELECT child.id, child.first, child.nth, $2::bigint + 1
  FROM (
    SELECT id, first FROM sm.lane_order WHERE lane_order.id = sm._node('') ORDER BY version DESC LIMIT 1) node
  CROSS JOIN LATERAL (
    (SELECT id, first, NULL::bigint AS nth FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first <= $1::bigint[] ORDER BY first)
    UNION ALL
    (SELECT id, first, row_number() OVER (ORDER BY first) FROM (
      SELECT id, first FROM sm.lane_order
      WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first > $1::bigint[]
      ORDER BY first LIMIT $2::bigint + 1) behind)
  ) child
  WHERE $3::text[] IS NULL
),
of_queue AS MATERIALIZED (
  SELECT greatest(16, 2 * $2::bigint / greatest(1, count(*))) + 1 AS most, min(first) FILTER (WHERE nth = most) AS cut
  FROM queues
),
classes AS MATERIALIZED (
  SELECT child.* FROM queues node CROSS JOIN LATERAL (
    (SELECT id, first, NULL::bigint AS nth FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first <= $1::bigint[] ORDER BY first)
    UNION ALL
    (SELECT id, first, row_number() OVER (ORDER BY first) FROM (
      SELECT id, first FROM sm.lane_order
      WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first > $1::bigint[]
      ORDER BY first LIMIT (SELECT most FROM of_queue)) behind)
  ) child
),
of_class AS MATERIALIZED (
  SELECT greatest(16, 2 * $2::bigint / greatest(1, count(*))) + 1 AS most,
    min(first) FILTER (WHERE nth = (SELECT most FROM of_queue)) AS cut
  FROM classes
),
groups AS MATERIALIZED (
  SELECT child.* FROM classes node CROSS JOIN LATERAL (
    (SELECT id, first, NULL::bigint AS nth FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first <= $1::bigint[] ORDER BY first)
    UNION ALL
    (SELECT id, first, row_number() OVER (ORDER BY first) FROM (
      SELECT id, first FROM sm.lane_order
      WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first > $1::bigint[]
      ORDER BY first LIMIT (SELECT most FROM of_class)) behind)
  ) child
),
of_group AS MATERIALIZED (
  SELECT greatest(16, 2 * $2::bigint / greatest(1, count(*))) + 1 AS most,
    min(first) FILTER (WHERE nth = (SELECT most FROM of_class)) AS cut
  FROM groups
),
lanes AS MATERIALIZED (
  SELECT child.* FROM groups node CROSS JOIN LATERAL (
    SELECT id, first, row_number() OVER (ORDER BY first) AS nth FROM (
      SELECT id, first FROM sm.lane_order
      WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first > $1::bigint[]
      ORDER BY first LIMIT (SELECT most FROM of_group)) behind
  ) child
),
cut AS MATERIALIZED (
  SELECT least(of_queue.cut, of_class.cut, of_group.cut, (
    SELECT min(first) FROM lanes WHERE nth = (SELECT most FROM of_group))) AS first
  FROM of_queue CROSS JOIN of_class CROSS JOIN of_group
),
found AS MATERIALIZED (
  SELECT id, first, row_number() OVER (ORDER BY first) AS nth FROM lanes
  WHERE coalesce(first <= (SELECT first FROM cut), true) ORDER BY first LIMIT $2::bigint + 1
)
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, greatest(was.ready, 1), was.bound, was.early, found.first,
  coalesce((
    SELECT max(first) FROM found WHERE nth = $2::bigint AND EXISTS (SELECT FROM found WHERE nth > $2::bigint)
  ), (SELECT first FROM cut))
FROM found
CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = found.id OFFSET 0) lane
CROSS JOIN LATERAL (
  SELECT ready, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = found.id ORDER BY version DESC LIMIT 1) was
WHERE found.nth <= $2::bigint
