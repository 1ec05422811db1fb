-- For filed lanes: returns the lanes of one contender that do not sleep, in the columns of lanes_behind.
-- Returns nothing if its class sleeps.
-- $1: a lane of the contender, in an array. $2: the place after which the lanes begin. $3: the most lanes.
WITH
contender AS MATERIALIZED (
  SELECT work.id, work.first
  FROM (SELECT parent FROM sm.lane_order WHERE lane_order.id = ($1::uuid[])[1] ORDER BY version DESC LIMIT 1) of_lane
  CROSS JOIN LATERAL (
    SELECT parent FROM sm.lane_order WHERE lane_order.id = of_lane.parent ORDER BY version DESC LIMIT 1) of_group
  CROSS JOIN LATERAL (
    SELECT id, parent, first FROM sm.lane_order WHERE lane_order.id = of_group.parent ORDER BY version DESC LIMIT 1) work
  CROSS JOIN LATERAL (
    SELECT sleeps FROM sm.lane_order WHERE lane_order.id = work.parent ORDER BY version DESC LIMIT 1) class
  WHERE NOT class.sleeps
),
groups AS MATERIALIZED (
  SELECT child.* FROM contender node CROSS JOIN LATERAL (
    (SELECT id, first FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first <= $2::bigint[] ORDER BY first)
    UNION ALL
    (SELECT id, first FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first > $2::bigint[]
    ORDER BY first LIMIT $3::bigint + 1)
  ) child
),
found AS MATERIALIZED (
  SELECT child.id, child.first, row_number() OVER (ORDER BY child.first) AS nth
  FROM groups node CROSS JOIN LATERAL (
    SELECT id, first FROM sm.lane_order
    WHERE parent = node.id AND NOT sleeps AND first >= node.first AND first > $2::bigint[]
    ORDER BY first LIMIT $3::bigint + 1) child
  ORDER BY child.first LIMIT $3::bigint + 1
)
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, greatest(was.ready, 1), was.bound, was.early, found.first,
  (SELECT max(first) FROM found WHERE nth = $3::bigint AND EXISTS (SELECT FROM found WHERE nth > $3::bigint))
FROM found
CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = found.id OFFSET 0) lane
CROSS JOIN LATERAL (
  SELECT ready, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = found.id ORDER BY version DESC LIMIT 1) was
WHERE found.nth <= $3::bigint
