-- Returns, as texts, what is filed by a first task other than its own, and what should be filed and is not.
-- Lanes with unfolded changes are skipped. Such a change files nothing yet, so the lane may have an earlier
-- first task than filed, or be filed at a task that it no longer has. One statement, hence one snapshot.
WITH
filed AS MATERIALIZED (SELECT many FROM sm.tick ORDER BY no DESC LIMIT 1),
changing AS MATERIALIZED (SELECT DISTINCT lane FROM sm.unfolded),
lanes AS MATERIALIZED (
  SELECT lane.digest, lane.no, coalesce(lane.queue, 'default') AS queue, head.first
  FROM sm.lane LEFT JOIN LATERAL (
    SELECT ARRAY[rank, logical_date, map_index, no] AS first FROM sm.ready WHERE ready.lane = lane.digest
    ORDER BY rank, logical_date, map_index, no LIMIT 1) head ON true
  WHERE (SELECT many FROM filed) AND lane.digest NOT IN (SELECT lane FROM changing)
),
nodes AS MATERIALIZED (
  SELECT node.id, node.parent, node.queue, node.about, node.first, node.from_no, node.sleeps, node.version,
    node.share, node.turn
  FROM sm.lane_order node
),
below AS MATERIALIZED (
  SELECT parent AS id, min(CASE WHEN first IS NOT NULL THEN coalesce(turn, first) END) FILTER (WHERE NOT sleeps) AS first,
    count(*) AS count FROM nodes GROUP BY parent
)
SELECT 'lane ' || lanes.no FROM lanes LEFT JOIN nodes ON nodes.id = lanes.digest
WHERE nodes.first IS DISTINCT FROM lanes.first
UNION ALL
SELECT 'the list of lane ' || lanes.no FROM lanes LEFT JOIN sm.ready_lane listed ON listed.digest = lanes.digest
WHERE (listed.no, listed.queue) IS DISTINCT FROM CASE WHEN lanes.first IS NOT NULL THEN (lanes.no, lanes.queue) END
  AND (listed.no IS NOT NULL OR lanes.first IS NOT NULL)
UNION ALL
SELECT 'what is above ' || nodes.id FROM nodes LEFT JOIN nodes above ON above.id = nodes.parent
WHERE nodes.parent IS NOT NULL AND above.id IS NULL
UNION ALL
SELECT 'node ' || nodes.id FROM nodes LEFT JOIN below ON below.id = nodes.id
WHERE (nodes.about IS NOT NULL OR nodes.queue IS NOT NULL OR nodes.parent IS NULL)
  AND (nodes.first IS DISTINCT FROM below.first
    OR nodes.about IS NOT NULL AND nodes.parent IS NOT NULL AND below.count IS NULL)
UNION ALL
SELECT 'the first lane of queue ' || coalesce(nodes.queue, 'any') FROM nodes
WHERE nodes.about IS NULL AND (nodes.parent IS NULL OR nodes.queue IS NOT NULL)
  AND nodes.from_no IS DISTINCT FROM (
    SELECT min(no) FROM sm.ready_lane WHERE nodes.queue IS NULL OR ready_lane.queue = nodes.queue)
UNION ALL
SELECT 'contender ' || nodes.id || ', by its turn' FROM nodes CROSS JOIN LATERAL sm._turn(about, share, turn[1]) now
WHERE nodes.turn IS NOT NULL AND now.turn <> nodes.turn
UNION ALL
SELECT 'node ' || id || ' twice' FROM nodes GROUP BY id HAVING count(*) > 1
UNION ALL
SELECT 'node ' || id || ', although no lanes are' FROM nodes WHERE NOT (SELECT many FROM filed)
