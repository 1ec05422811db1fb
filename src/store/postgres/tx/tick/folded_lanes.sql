-- Returns the lanes with ready tasks, as of the last fold. A tick plans with the counters that its grant
-- changes, not with what was committed since it folded. If there are few lanes, each comes with the ready tasks
-- that the tick's plan asks for first: as many as its pool has room for, and at most a share of twice the
-- budget. A lane with early tasks comes without any.
-- After the lane: how many tasks were looked for, and five arrays: place (rank, logical date, map index,
-- number), and since when the tasks are ready. Tasks that wait with slots that they kept form a lane of their
-- own, under the negative number.
-- $1: the most tasks that the tick admits; 0 for lanes alone. $2: the queues that it serves, or NULL for all.
WITH lanes AS MATERIALIZED (
  SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, was.ready, was.bound, was.early
  FROM sm.lane CROSS JOIN LATERAL (
    SELECT ready, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
    WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
  WHERE was.ready > 0 AND ($2::text[] IS NULL OR coalesce(lane.queue, 'default') = ANY ($2::text[]))
),
few AS MATERIALIZED (SELECT count(*) <= 64 AND $1::bigint > 0 AS is_few FROM lanes),
-- Read only if there are few lanes.
open AS MATERIALIZED (
  SELECT lanes.*, pool.room
  FROM lanes LEFT JOIN LATERAL (
    SELECT least($1::bigint, (pool.slots - coalesce(was.used, 0)) / greatest(lanes.slots, 1)) AS room
    FROM sm.pool LEFT JOIN LATERAL (
      SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1) was ON true
    WHERE pool.name = lanes.pool OFFSET 0) pool ON true
)
SELECT open.digest, open.no, open.pool, open.slots, open.limits, open.queue, open.ready, open.bound, open.early,
  share.most, page.ranks, page.dates, page.indices, page.numbers, page.instants
FROM open
CROSS JOIN LATERAL (
  SELECT CASE WHEN open.room > 0 AND open.early = '{}' THEN least(open.room, greatest(16,
    2 * $1::bigint / greatest(1, (SELECT count(*) FROM open WHERE room > 0)))) ELSE 0 END AS most
  OFFSET 0) share
CROSS JOIN LATERAL (
  SELECT array_agg(rank) AS ranks, array_agg(logical_date) AS dates, array_agg(map_index) AS indices,
    array_agg(no) AS numbers, array_agg(ready_at) AS instants
  FROM (
    SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
    WHERE ready.lane = open.digest
      AND (rank, logical_date, map_index, no) >= (open.bound[1], open.bound[2], open.bound[3], open.bound[4])
    ORDER BY rank, logical_date, map_index, no LIMIT share.most) ready
) page
WHERE (SELECT is_few FROM few)
UNION ALL
SELECT digest, no, pool, slots, limits, queue, ready, bound, early, 0, NULL, NULL, NULL, NULL, NULL
FROM lanes WHERE NOT (SELECT is_few FROM few)
UNION ALL
SELECT lane.digest, -lane.no, lane.pool, lane.slots, lane.limits, lane.queue, keeping.count, NULL, '{}', $1::bigint,
  page.ranks, page.dates, page.indices, page.numbers, page.instants
FROM (SELECT lane, count(*) AS count FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL GROUP BY lane) keeping
CROSS JOIN LATERAL (
  SELECT * FROM sm.lane WHERE lane.digest = keeping.lane
    AND ($2::text[] IS NULL OR coalesce(lane.queue, 'default') = ANY ($2::text[])) OFFSET 0) lane
CROSS JOIN LATERAL (
  SELECT array_agg(rank) AS ranks, array_agg(logical_date) AS dates, array_agg(map_index) AS indices,
    array_agg(no) AS numbers, array_agg(ready_at) AS instants
  FROM (
    SELECT rank, logical_date, map_index, no, ready_at FROM sm.idle
    WHERE idle.lane = lane.digest AND due IS NULL AND rank IS NOT NULL
    ORDER BY rank, logical_date, map_index, no LIMIT $1::bigint) first
) page
