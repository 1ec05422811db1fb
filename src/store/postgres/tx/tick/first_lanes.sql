-- For filed lanes: returns the first ready lanes by number, and all lanes whose tasks kept their slots, in the
-- columns of ready_lanes. Two more columns follow: why the lane is returned (0 first by number, 2 kept slots),
-- and whether it sleeps. The rows are unordered.
-- $1: how many of the first lanes. $2: the queues, or NULL for all.
WITH
begins AS MATERIALIZED (
  SELECT given.queue, was.from_no
  FROM (
    SELECT queue, sm._node('queue ' || queue) AS id FROM unnest($2::text[]) asked (queue)
    UNION ALL
    SELECT NULL, sm._node('') WHERE $2::text[] IS NULL
  ) given
  CROSS JOIN LATERAL (
    SELECT from_no FROM sm.lane_order WHERE lane_order.id = given.id ORDER BY version DESC LIMIT 1) was
),
listed AS MATERIALIZED (
  SELECT digest, no FROM (
    SELECT lane.* FROM begins CROSS JOIN LATERAL (
      SELECT digest, no FROM sm.ready_lane WHERE no >= begins.from_no ORDER BY no LIMIT $1::bigint) lane
    WHERE begins.queue IS NULL
    UNION ALL
    SELECT lane.* FROM begins CROSS JOIN LATERAL (
      SELECT digest, no FROM sm.ready_lane WHERE ready_lane.queue = begins.queue AND no >= begins.from_no
      ORDER BY no LIMIT $1::bigint) lane
  ) lane
  ORDER BY no LIMIT $1::bigint
)
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, greatest(was.ready, 1), was.bound, was.early, wanted.part,
  coalesce(filed.sleeps, false)
FROM (SELECT digest, 0 AS part FROM listed) wanted
CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = wanted.digest OFFSET 0) lane
CROSS JOIN LATERAL (
  SELECT ready, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = wanted.digest ORDER BY version DESC LIMIT 1) was
LEFT JOIN LATERAL (
  SELECT lane_group.sleeps OR class.sleeps OR above.sleeps AS sleeps
  FROM (SELECT parent FROM sm.lane_order WHERE lane_order.id = wanted.digest ORDER BY version DESC LIMIT 1) of_lane
  CROSS JOIN LATERAL (
    SELECT parent, sleeps FROM sm.lane_order WHERE lane_order.id = of_lane.parent ORDER BY version DESC LIMIT 1) lane_group
  CROSS JOIN LATERAL (
    SELECT parent, sleeps FROM sm.lane_order WHERE lane_order.id = lane_group.parent ORDER BY version DESC LIMIT 1) class
  -- The contender is between a share's group and its class.
  CROSS JOIN LATERAL (
    SELECT sleeps FROM sm.lane_order WHERE lane_order.id = class.parent ORDER BY version DESC LIMIT 1) above
) filed ON true
UNION ALL
SELECT lane.digest, -lane.no, lane.pool, lane.slots, lane.limits, lane.queue, keeping.count, NULL, '{}', 2, false
FROM (SELECT lane, count(*) AS count FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL GROUP BY lane) keeping
CROSS JOIN LATERAL (
  SELECT * FROM sm.lane WHERE lane.digest = keeping.lane
    AND ($2::text[] IS NULL OR coalesce(lane.queue, 'default') = ANY ($2::text[])) OFFSET 0) lane
