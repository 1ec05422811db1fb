-- Adds the deltas of committed transactions to the counters and deletes them, lowest transaction numbers first.
-- Returns how many deltas it read, whether these were all, and what is damaged. If anything is, roll back.
-- Then, if lanes are filed, otherwise NULL: the lanes whose ready tasks changed, the pools with more open
-- slots, and the keys against which less counts. Then the number of lanes, if it made any. Then the pools and
-- the names of the shares that it changed, or NULL.
-- $1: the most deltas to read. $2: the most lanes to count.
WITH
-- A delta counts if its row exists; the snapshot of the last whole fold only bounds the search. That snapshot
-- is useless if it is from another server, from which this schema was restored. It is then ahead of the
-- transaction that wrote it here, or of this server.
last AS MATERIALIZED (
  SELECT no, due, early, many, CASE WHEN txid_snapshot_xmax(seen) <= txid_snapshot_xmax(txid_current_snapshot())
    AND (xmin::text::bigint - txid_snapshot_xmax(seen)) & 4294967295 < 2147483648 THEN seen
    ELSE '1:1:'::txid_snapshot END AS seen
  FROM sm.tick ORDER BY no DESC LIMIT 1
),
late AS MATERIALIZED (SELECT txid_snapshot_xip(last.seen) AS xid FROM last),
found AS MATERIALIZED (
  SELECT at FROM (
    (SELECT delta.* FROM last CROSS JOIN LATERAL (
       SELECT ctid AS at, xid, id FROM sm.delta WHERE delta.xid >= txid_snapshot_xmax(last.seen)
       ORDER BY xid, id LIMIT $1::bigint) delta)
    UNION ALL
    (SELECT delta.* FROM late CROSS JOIN LATERAL (
       SELECT ctid AS at, xid, id FROM sm.delta WHERE delta.xid = late.xid
       ORDER BY xid, id LIMIT $1::bigint) delta)
  ) found
  ORDER BY xid, id LIMIT $1::bigint
),
gone AS (DELETE FROM sm.delta WHERE ctid = ANY (ARRAY(SELECT at FROM found)) RETURNING delta.*),
read AS MATERIALIZED (SELECT count(*) AS count, count(*) < $1::bigint AS whole FROM gone),
sums AS MATERIALIZED (
  SELECT lane AS digest, sum(ready)::bigint AS ready, sum(tasks)::bigint AS tasks, sum(slots)::bigint AS slots,
    sum(leases)::bigint AS leases, min(due) AS due, min(first) AS first,
    min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE came > 0) AS head,
    min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE came > 1) AS head_of_many,
    min(pool) AS pool, min(lane_slots) AS lane_slots, min(limits) AS limits, min(queue) AS queue
  FROM gone GROUP BY lane
),
-- Also the lanes that partial folds left empty.
touched AS MATERIALIZED (
  SELECT * FROM sums
  UNION ALL
  SELECT left_empty.digest, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT DISTINCT digest FROM sm.lane_use WHERE tasks = 0 AND ready = 0) left_empty CROSS JOIN read
  WHERE read.whole AND left_empty.digest NOT IN (SELECT digest FROM sums)
),
-- A lane is made again from the needs in its deltas, so a lane that was removed in between comes back. Only a
-- whole fold has read every cause of what it read. So only a whole fold may find that a lane is empty or
-- missing.
lanes AS MATERIALIZED (
  SELECT touched.*, coalesce(lane.pool, touched.pool) AS of_pool, coalesce(lane.limits, touched.limits) AS of_limits,
    coalesce(lane.slots, touched.lane_slots) AS of_slots,
    lane.digest IS NULL AS is_new,
    coalesce(
      (lane.pool, lane.slots, lane.limits, CASE WHEN lane.digest IS NOT NULL THEN coalesce(lane.queue, '') END)
        <> (touched.pool, touched.lane_slots,
        touched.limits, CASE WHEN touched.pool IS NOT NULL THEN coalesce(touched.queue, '') END),
      lane.digest IS NULL AND touched.pool IS NULL
        AND (touched.slots > 0 OR touched.leases > 0 OR read.whole)) AS is_damaged,
    read.whole AND coalesce(was.tasks, 0) + touched.tasks = 0 AND coalesce(was.ready, 0) + touched.ready = 0
      AS is_empty,
    was.at, coalesce(was.ready, 0) + touched.ready AS now_ready, coalesce(was.tasks, 0) + touched.tasks AS now_tasks,
    was.bound, coalesce(was.early, '{}') AS early
  FROM touched CROSS JOIN read
  LEFT JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = touched.digest OFFSET 0) lane ON true
  LEFT JOIN LATERAL (
    SELECT ctid AS at, ready, tasks, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
    WHERE lane_use.digest = touched.digest ORDER BY version DESC LIMIT 1) was ON true
),
-- A task that became ready alone and is before the bound is remembered by number; for the others the bound is
-- lowered. Lanes are looked up and grouped, never joined. If the server expects one row, it joins by looping
-- over all.
before AS MATERIALIZED (
  SELECT came.lane AS digest, came.no, came.place,
    cardinality(was.early) + row_number() OVER (PARTITION BY came.lane ORDER BY came.place) AS nth
  FROM (
    SELECT DISTINCT lane, no, ARRAY[rank, logical_date, map_index, no] AS place FROM gone WHERE came = 1
  ) came
  CROSS JOIN LATERAL (
    SELECT ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
    WHERE lane_use.digest = came.lane ORDER BY version DESC LIMIT 1) was
  WHERE came.place < was.bound AND came.no <> ALL (was.early)
),
kept AS MATERIALIZED (
  SELECT digest, max(now_ready) AS now_ready, max(now_tasks) AS now_tasks,
    max(early) || array_agg(no) FILTER (WHERE nth <= 32) AS early,
    CASE WHEN bool_or(is_uncounted) THEN min(head)
      ELSE least(min(bound), min(head_of_many), min(place) FILTER (WHERE nth > 32)) END AS bound
  FROM (
    SELECT digest, now_ready, now_tasks, early, at IS NULL AS is_uncounted, is_empty, head, head_of_many, bound,
      NULL::bigint AS no, NULL::bigint[] AS place, NULL::bigint AS nth
    FROM lanes
    UNION ALL
    SELECT digest, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, no, place, nth FROM before
  ) parts
  GROUP BY digest
  HAVING NOT bool_or(is_empty)
),
made_lanes AS (
  INSERT INTO sm.lane (digest, no, slots, pool, limits, queue)
  SELECT digest, first, lane_slots, pool, limits, queue FROM lanes WHERE is_new AND NOT is_empty AND pool IS NOT NULL
),
lost_lanes AS (DELETE FROM sm.lane WHERE digest = ANY (ARRAY(SELECT digest FROM lanes WHERE is_empty))),
old_lane_uses AS (DELETE FROM sm.lane_use WHERE ctid = ANY (ARRAY(SELECT at FROM lanes))),
lane_uses AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
  SELECT digest, nextval('sm.version'), now_ready, now_tasks, coalesce(bound[1], -9223372036854775808),
    coalesce(bound[2], -9223372036854775808), coalesce(bound[3], -9223372036854775808),
    coalesce(bound[4], -9223372036854775808), early
  FROM kept
),
-- A counter that reaches 0 is deleted. Slots are given back only for leases that were counted, so 0 means that
-- no lease is open.
pools AS MATERIALIZED (
  SELECT back.pool, was.at, was.used - back.slots AS used
  FROM (
    SELECT part.pool, sum(lanes.slots / lanes.of_slots * part.slots)::bigint AS slots
    FROM lanes CROSS JOIN LATERAL sm._pools_of(lanes.of_pool, lanes.of_slots, lanes.of_limits) part
    WHERE lanes.slots > 0 GROUP BY part.pool
  ) back
  LEFT JOIN LATERAL (
    SELECT ctid AS at, used FROM sm.pool_use WHERE pool_use.name = back.pool
    ORDER BY version DESC LIMIT 1) was ON true
),
old_pool_uses AS (DELETE FROM sm.pool_use WHERE ctid = ANY (ARRAY(SELECT at FROM pools))),
pool_uses AS (
  INSERT INTO sm.pool_use (name, version, used) SELECT pool, nextval('sm.version'), used FROM pools WHERE used <> 0
),
limits AS MATERIALIZED (
  SELECT change.key, was.at, coalesce(was.used, 0) - change.leases AS used,
    coalesce(was.lanes, 0) + change.lanes AS lanes, change.leases AS back
  FROM (
    SELECT carried.key, sum(lane.leases * carried.count)::bigint AS leases, sum(lane.more)::bigint AS lanes
    FROM (
      SELECT of_limits, leases,
        CASE WHEN is_new AND NOT is_empty AND pool IS NOT NULL THEN 1 WHEN is_empty AND NOT is_new THEN -1 ELSE 0 END
          AS more
      FROM lanes
    ) lane
    CROSS JOIN LATERAL sm._carried(lane.of_limits) carried
    WHERE lane.leases > 0 OR lane.more <> 0
    GROUP BY carried.key
  ) change
  LEFT JOIN LATERAL (
    SELECT ctid AS at, used, lanes FROM sm.limit_use WHERE limit_use.key = change.key
    ORDER BY version DESC LIMIT 1) was ON true
),
old_limit_uses AS (DELETE FROM sm.limit_use WHERE ctid = ANY (ARRAY(SELECT at FROM limits))),
limit_uses AS (
  INSERT INTO sm.limit_use (key, version, used, lanes)
  SELECT key, nextval('sm.version'), used, lanes FROM limits WHERE used <> 0 OR lanes <> 0
),
-- A new share is stamped. One that gives back its last slot goes behind those that have waited until now.
shares AS MATERIALIZED (
  SELECT change.pool, change.share, was.at, coalesce(was.held, 0) - change.slots AS held,
    coalesce(was.lanes, 0) + change.lanes AS lanes, coalesce(was.dither, 0) AS dither,
    CASE WHEN was.at IS NULL THEN 2 * clock.grants WHEN was.held > 0 AND was.held = change.slots
      THEN 2 * clock.grants + 1 ELSE was.stamp END AS stamp
  FROM (
    SELECT part.pool, part.share, sum(lane.slots / lane.of_slots * part.slots)::bigint AS slots,
      coalesce(sum(lane.more) FILTER (WHERE part.pool = lane.of_pool), 0)::bigint AS lanes
    FROM (
      SELECT of_pool, of_slots, of_limits, slots,
        CASE WHEN is_new AND NOT is_empty AND pool IS NOT NULL THEN 1 WHEN is_empty AND NOT is_new THEN -1 ELSE 0 END
          AS more
      FROM lanes
    ) lane
    CROSS JOIN LATERAL sm._shares_of(lane.of_pool, lane.of_slots, lane.of_limits) part
    WHERE lane.slots > 0 OR lane.more <> 0 AND part.pool = lane.of_pool
    GROUP BY part.pool, part.share
  ) change
  CROSS JOIN LATERAL (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1) clock
  LEFT JOIN LATERAL (
    SELECT ctid AS at, held, lanes, stamp, dither FROM sm.share_use
    WHERE share_use.pool = change.pool AND share_use.share = change.share ORDER BY version DESC LIMIT 1) was ON true
),
old_share_uses AS (DELETE FROM sm.share_use WHERE ctid = ANY (ARRAY(SELECT at FROM shares))),
share_uses AS (
  INSERT INTO sm.share_use (pool, share, version, held, lanes, stamp, dither)
  SELECT pool, share, nextval('sm.version'), held, lanes, stamp, dither FROM shares WHERE held <> 0 OR lanes <> 0
),
-- A snapshot of another server is replaced at once, because promotion would copy it. A snapshot does not list
-- its own transaction, which may have had its number for long. So the recorded snapshot ends at that number,
-- although later transactions may have ended. That is safe, because their deltas are deleted.
own AS MATERIALIZED (
  SELECT txid_current() AS xid, txid_current_snapshot() AS seen FROM read
  WHERE read.count > 0 OR EXISTS (SELECT FROM touched) OR (SELECT seen::text FROM last) = '1:1:'
),
seen AS MATERIALIZED (
  SELECT CASE WHEN own.xid >= txid_snapshot_xmax(own.seen) THEN own.seen ELSE concat(
    least(own.xid, txid_snapshot_xmin(own.seen)), ':', own.xid, ':', (
      SELECT string_agg(open.xid::text, ',' ORDER BY open.xid)
      FROM txid_snapshot_xip(own.seen) open (xid) WHERE open.xid < own.xid))::txid_snapshot END AS seen
  FROM own
),
old_tick AS (DELETE FROM sm.tick WHERE no = ANY (ARRAY(SELECT no FROM last)) AND EXISTS (SELECT FROM own)),
new_tick AS (
  INSERT INTO sm.tick (no, seen, due, early, many)
  SELECT last.no + 1, CASE WHEN read.whole THEN seen.seen ELSE last.seen END,
    least(last.due, (SELECT min(due) FROM sums)), last.early, last.many
  FROM last CROSS JOIN read CROSS JOIN seen
)
SELECT read.count, read.whole,
  ARRAY(SELECT 'lane ' || digest FROM lanes WHERE is_damaged LIMIT 3)
  || ARRAY(SELECT 'pool ' || pool FROM pools WHERE coalesce(used, -1) < 0 LIMIT 3)
  || ARRAY(SELECT 'share ' || share FROM shares WHERE held < 0 OR lanes < 0 LIMIT 3)
  || ARRAY(SELECT 'limit ' || key FROM limits WHERE used < 0 OR lanes < 0 LIMIT 3),
  CASE WHEN last.many THEN ARRAY(
    SELECT digest FROM lanes WHERE ready <> 0 OR head IS NOT NULL OR is_new OR is_empty) END,
  CASE WHEN last.many THEN ARRAY(SELECT pool FROM pools) END,
  CASE WHEN last.many THEN ARRAY(SELECT key FROM limits WHERE back > 0) END,
  CASE WHEN (SELECT bool_or(is_new) FROM lanes) THEN (SELECT count(*) FROM lanes WHERE is_new)
    + (SELECT count(*) FROM (SELECT FROM sm.lane LIMIT $2::bigint) lanes) END,
  CASE WHEN last.many THEN ARRAY(SELECT pool FROM shares) END,
  CASE WHEN last.many THEN ARRAY(SELECT share FROM shares) END
FROM read CROSS JOIN last
