-- Returns what request, folded_lanes, folded_pools and next_due return, right after _fold_few. For
-- stores with at most 16 ready lanes, none with limits, and nothing paused. One small plan is cheaper to set up
-- than four. Returns a row per ready lane, or one row without a lane. After the columns of folded_lanes: the
-- lane's pool, what the request granted (numbers, then epochs), whether something makes this result incomplete,
-- and, in the first row, what holders said they serve. Tasks that kept slots are looked up in the order of
-- their index: a server that expects some would walk another index.
-- $1: the most tasks that the tick admits; 0 for lanes alone. $2: the queues that it serves, or NULL for all.
-- $3: the name of the tick, or NULL.
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, lane.ready,
  ARRAY[lane.rank, lane.logical_date, lane.map_index, lane.first], lane.early,
  CASE WHEN lane.early = '{}' THEN greatest(0, least($1::bigint, (pool.slots - pool.used) / lane.slots)) ELSE 0 END,
  page.ranks, page.dates, page.indices, page.numbers, page.instants,
  pool.name, pool.slots, pool.used, pool.keeps_slots, pool.description, beside.granted, beside.has_more,
  CASE WHEN row_number() OVER () = 1 THEN beside.told END
FROM (
  SELECT (SELECT nos || epochs FROM sm.request WHERE id = $3::text) AS granted,
    (SELECT no FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL
      ORDER BY lane, rank, logical_date, map_index, no LIMIT 1) IS NOT NULL
      OR EXISTS (SELECT FROM sm.family) OR EXISTS (SELECT FROM sm.pause) AS has_more,
    ARRAY(SELECT json_build_array(holder, queues, announced_at, lease)::text FROM sm.serving) AS told
) beside
LEFT JOIN LATERAL (
  SELECT lane.*, was.ready, was.rank, was.logical_date, was.map_index, was.no AS first, was.early
  FROM sm.lane CROSS JOIN LATERAL (
    SELECT ready, rank, logical_date, map_index, no, early FROM sm.lane_use
    WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
  WHERE was.ready > 0 AND ($2::text[] IS NULL OR coalesce(lane.queue, 'default') = ANY ($2::text[]))
  LIMIT 17) lane ON true
LEFT JOIN LATERAL (
  SELECT name, slots, keeps_slots, description, coalesce((
    SELECT used FROM sm.pool_use WHERE pool_use.name = pool.name ORDER BY version DESC LIMIT 1), 0) AS used
  FROM sm.pool WHERE pool.name = lane.pool OFFSET 0) pool ON true
LEFT JOIN LATERAL (
  SELECT array_agg(rank) AS ranks, array_agg(logical_date) AS dates, array_agg(map_index) AS indices,
    array_agg(no) AS numbers, array_agg(ready_at) AS instants
  FROM (
    SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
    WHERE ready.lane = lane.digest
      AND (rank, logical_date, map_index, no) >= (lane.rank, lane.logical_date, lane.map_index, lane.first)
    ORDER BY rank, logical_date, map_index, no
    LIMIT CASE WHEN lane.early = '{}' THEN greatest(0, least($1::bigint, (pool.slots - pool.used) / lane.slots))
      ELSE 0 END) ready
) page ON true
