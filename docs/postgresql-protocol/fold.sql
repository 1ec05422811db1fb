WITH last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
-- Whether a delta exists decides; what the last whole fold saw only bounds the search. A transaction is not among
-- those that its own snapshot names as open, so what the last folder appended is looked for by its number.
late AS MATERIALIZED (
  SELECT txid_snapshot_xip(last.seen) AS xid FROM last UNION SELECT last.folder FROM last
),
found AS MATERIALIZED (
  SELECT * FROM (
    (SELECT delta.xid, delta.id FROM last CROSS JOIN LATERAL (
       SELECT xid, id FROM sm.delta WHERE delta.xid >= txid_snapshot_xmax(last.seen)
       ORDER BY xid, id LIMIT $1::bigint) delta)
    UNION
    (SELECT delta.xid, delta.id FROM late CROSS JOIN LATERAL (
       SELECT xid, id FROM sm.delta WHERE delta.xid = late.xid ORDER BY xid, id LIMIT $1::bigint) delta)
  ) found
  ORDER BY xid, id LIMIT $1::bigint
),
gone AS (
  DELETE FROM sm.delta USING found WHERE delta.xid = found.xid AND delta.id = found.id RETURNING delta.*
),
read AS MATERIALIZED (SELECT count(*) AS count, count(*) < $1::bigint AS whole FROM gone),
sums AS MATERIALIZED (
  SELECT lane AS digest, sum(ready)::bigint AS ready, sum(tasks)::bigint AS tasks, sum(slots)::bigint AS slots,
    sum(leases)::bigint AS leases, min(due) AS due, min(first) AS first,
    min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE no IS NOT NULL) AS head,
    min(pool) AS pool, min(lane_slots) AS lane_slots, min(limits) AS limits
  FROM gone GROUP BY lane
),
-- And the lanes that folds which were not whole have left empty.
touched AS MATERIALIZED (
  SELECT * FROM sums
  UNION ALL
  SELECT left_empty.digest, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT DISTINCT digest FROM sm.lane_use WHERE tasks = 0 AND ready = 0) left_empty CROSS JOIN read
  WHERE read.whole AND NOT EXISTS (SELECT FROM sums WHERE sums.digest = left_empty.digest)
),
-- A lane is made again from what its inserts say, so one that was removed in between comes back.
lanes AS MATERIALIZED (
  SELECT touched.*, lane.no, coalesce(lane.pool, touched.pool) AS of_pool, coalesce(lane.limits, touched.limits) AS of_limits,
    lane.digest IS NULL AS is_new,
    coalesce((lane.pool, lane.slots, lane.limits) <> (touched.pool, touched.lane_slots, touched.limits), touched.pool IS NULL AND lane.digest IS NULL)
      AS damaged,
    coalesce(was.ready, 0) AS was_ready, coalesce(was.tasks, 0) AS was_tasks, was.version,
    ARRAY[was.rank, was.logical_date, was.map_index, was.no] AS was_head
  FROM touched
  LEFT JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = touched.digest OFFSET 0) lane ON true
  LEFT JOIN LATERAL (SELECT * FROM sm.lane_use WHERE lane_use.digest = touched.digest ORDER BY version DESC LIMIT 1) was ON true
),
-- Only a whole fold has seen every cause of what it read, so only it may find that a lane is empty.
emptied AS MATERIALIZED (
  SELECT lanes.* FROM lanes CROSS JOIN read WHERE read.whole AND was_tasks + tasks = 0 AND was_ready + ready = 0
),
kept AS MATERIALIZED (
  SELECT lanes.*, CASE WHEN version IS NULL THEN head ELSE least(was_head, head) END AS new_head
  FROM lanes WHERE NOT EXISTS (SELECT FROM emptied WHERE emptied.digest = lanes.digest)
),
made_lanes AS (
  INSERT INTO sm.lane (digest, no, slots, pool, limits)
  SELECT digest, nextval('sm.lane_no'), lane_slots, pool, limits
  FROM (SELECT * FROM kept WHERE is_new AND pool IS NOT NULL ORDER BY first) made
),
lost_lanes AS (DELETE FROM sm.lane USING emptied WHERE lane.digest = emptied.digest),
old_lane_uses AS (
  DELETE FROM sm.lane_use USING lanes WHERE lane_use.digest = lanes.digest AND lane_use.version = lanes.version
),
lane_uses AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no)
  SELECT digest, nextval('sm.version'), was_ready + ready, was_tasks + tasks,
    coalesce(new_head[1], 9223372036854775807), coalesce(new_head[2], 9223372036854775807),
    coalesce(new_head[3], 9223372036854775807), coalesce(new_head[4], 9223372036854775807)
  FROM kept
),
pools AS MATERIALIZED (
  SELECT back.pool, back.slots, was.version, was.used - back.slots AS used
  FROM (SELECT of_pool AS pool, sum(slots)::bigint AS slots FROM lanes WHERE slots > 0 GROUP BY of_pool) back
  LEFT JOIN LATERAL (SELECT * FROM sm.pool_use WHERE pool_use.name = back.pool ORDER BY version DESC LIMIT 1) was ON true
),
old_pool_uses AS (
  DELETE FROM sm.pool_use USING pools WHERE pool_use.name = pools.pool AND pool_use.version = pools.version
),
pool_uses AS (
  INSERT INTO sm.pool_use (name, version, used) SELECT pool, nextval('sm.version'), used FROM pools WHERE used <> 0
),
limits AS MATERIALIZED (
  SELECT change.key, change.lanes, was.version, coalesce(was.used, 0) - change.leases AS used,
    coalesce(was.lanes, 0) + change.lanes AS new_lanes
  FROM (SELECT carried.key, sum(leases)::bigint AS leases, sum(lanes)::bigint AS lanes
        FROM (SELECT lanes.of_limits, lanes.leases, CASE WHEN lanes.is_new AND emptied.digest IS NULL THEN 1
                WHEN NOT lanes.is_new AND emptied.digest IS NOT NULL THEN -1 ELSE 0 END AS lanes
              FROM lanes LEFT JOIN emptied ON emptied.digest = lanes.digest) lane
        CROSS JOIN LATERAL json_array_elements_text(of_limits::json) carried (key)
        WHERE leases > 0 OR lanes <> 0 GROUP BY carried.key) change
  LEFT JOIN LATERAL (SELECT * FROM sm.limit_use WHERE limit_use.key = change.key ORDER BY version DESC LIMIT 1) was ON true
),
old_limit_uses AS (
  DELETE FROM sm.limit_use USING limits WHERE limit_use.key = limits.key AND limit_use.version = limits.version
),
limit_uses AS (
  INSERT INTO sm.limit_use (key, version, used, lanes)
  SELECT key, nextval('sm.version'), used, new_lanes FROM limits WHERE used <> 0 OR new_lanes <> 0
),
old_tick AS (DELETE FROM sm.tick USING last CROSS JOIN read 
  WHERE tick.no = last.no AND (read.count > 0 OR EXISTS (SELECT FROM touched))),
new_tick AS (
  INSERT INTO sm.tick (no, seen, folder, due)
  SELECT last.no + 1, CASE WHEN read.whole THEN txid_current_snapshot() ELSE last.seen END,
    CASE WHEN read.whole THEN txid_current() ELSE last.folder END,
    least(last.due, (SELECT min(due) FROM sums))
  FROM last CROSS JOIN read WHERE read.count > 0 OR EXISTS (SELECT FROM touched)
)
SELECT read.count, read.whole,
  (SELECT count(*) FROM lanes WHERE damaged) + (SELECT count(*) FROM pools WHERE coalesce(used, -1) < 0)
    + (SELECT count(*) FROM limits WHERE used < 0 OR new_lanes < 0) AS damaged
FROM read
