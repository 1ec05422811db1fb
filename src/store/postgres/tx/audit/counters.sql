-- Returns the counters that differ from what they count. First a code: 0 a pool with its deltas; 1 a pool
-- without them, which must not be below what is held; 2 and 3 the same of a limit; 4 the lanes that carry a
-- limit key; 5 the ready tasks of a lane; 6 its tasks that have not ended; 7 what a share holds of a pool; 8
-- its lanes. 7 and 8 have the share in the place of the limits. Then a pool, a key, or the needs of a lane.
-- Then the counter and the actual number. One statement, hence one snapshot.
WITH
held AS MATERIALIZED (
  SELECT stands.*, task.pool, task.slots, task.limits, task.queue
  FROM (
    SELECT lane, min(no) AS no, sum(held)::bigint AS held, sum(leases)::bigint AS leases, sum(ready)::bigint AS ready,
      sum(tasks)::bigint AS tasks
    FROM (
      SELECT lane, no, 0 AS held, 0 AS leases, 1 AS ready, 1 AS tasks FROM sm.ready
      UNION ALL
      SELECT lane, no, slots, 1, 0, 1 FROM sm.lease
      UNION ALL
      SELECT lane, no, 0, 0, 0, 1 FROM sm.idle WHERE state = 4
      UNION ALL
      SELECT lane, no, 0, 0, 0, 1 FROM sm.idle WHERE due IS NOT NULL AND state IN (3, 5)
      UNION ALL
      SELECT lane, no, 0, 0, 0, 1 FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL AND state = 5
      UNION ALL
      SELECT lane, no, slots, 0, 0, 0 FROM sm.idle WHERE slots IS NOT NULL
    ) stands
    GROUP BY lane
  ) stands
  CROSS JOIN LATERAL (SELECT pool, slots, limits, queue FROM sm.task WHERE task.no = stands.no OFFSET 0) task
),
lanes AS MATERIALIZED (SELECT * FROM sm.lane_now),
pools AS (
  SELECT coalesce(was.pool, back.pool, there.pool) AS pool, coalesce(was.used, 0) AS raw,
    coalesce(was.used, 0) - coalesce(back.slots, 0) AS counted, coalesce(there.held, 0) AS held
  FROM (SELECT name AS pool, sum(used)::bigint AS used FROM sm.pool_use GROUP BY name) was
  FULL JOIN (
    SELECT part.pool, sum(lanes.slots_back / lanes.slots * part.slots)::bigint AS slots
    FROM lanes CROSS JOIN LATERAL sm._pools_of(lanes.pool, lanes.slots, lanes.limits) part
    WHERE lanes.slots_back <> 0 GROUP BY part.pool) back
    ON back.pool = was.pool
  FULL JOIN (
    SELECT part.pool, sum(held.held / held.slots * part.slots)::bigint AS held
    FROM held CROSS JOIN LATERAL sm._pools_of(held.pool, held.slots, held.limits) part GROUP BY part.pool) there
    ON there.pool = coalesce(was.pool, back.pool)
),
limits AS (
  SELECT coalesce(was.key, back.key, there.key, named.key) AS key, coalesce(was.used, 0) AS raw,
    coalesce(was.used, 0) - coalesce(back.leases, 0) AS counted, coalesce(there.leases, 0) AS held,
    coalesce(was.lanes, 0) AS lanes, coalesce(named.lanes, 0) AS named
  FROM (SELECT key, sum(used)::bigint AS used, sum(lanes)::bigint AS lanes FROM sm.limit_use GROUP BY key) was
  FULL JOIN (
    SELECT carried.key, sum(lanes.leases_back * carried.count)::bigint AS leases
    FROM lanes CROSS JOIN LATERAL sm._carried(lanes.limits) carried
    WHERE lanes.leases_back <> 0 GROUP BY carried.key) back ON back.key = was.key
  FULL JOIN (
    SELECT carried.key, sum(held.leases * carried.count)::bigint AS leases
    FROM held CROSS JOIN LATERAL sm._carried(held.limits) carried
    GROUP BY carried.key) there ON there.key = coalesce(was.key, back.key)
  FULL JOIN (
    SELECT carried.key, count(*) AS lanes
    FROM sm.lane CROSS JOIN LATERAL sm._carried(lane.limits) carried
    GROUP BY carried.key) named ON named.key = coalesce(was.key, back.key, there.key)
),
shares AS (
  SELECT pool, share, sum(counted)::bigint AS counted, sum(held)::bigint AS held, sum(lanes)::bigint AS lanes,
    sum(named)::bigint AS named
  FROM (
    SELECT pool, share, held AS counted, 0 AS held, lanes, 0 AS named FROM sm.share_use
    UNION ALL
    SELECT part.pool, part.share, -(lanes.slots_back / lanes.slots * part.slots), 0, 0, 0
    FROM lanes CROSS JOIN LATERAL sm._shares_of(lanes.pool, lanes.slots, lanes.limits) part WHERE lanes.slots_back <> 0
    UNION ALL
    SELECT part.pool, part.share, 0, held.held / held.slots * part.slots, 0, 0
    FROM held CROSS JOIN LATERAL sm._shares_of(held.pool, held.slots, held.limits) part
    UNION ALL
    SELECT part.pool, part.share, 0, 0, 0, 1
    FROM sm.lane CROSS JOIN LATERAL sm._shares_of(lane.pool, lane.slots, lane.limits) part WHERE part.pool = lane.pool
  ) parts
  GROUP BY pool, share
),
counts AS (
  SELECT coalesce(lanes.pool, held.pool) AS pool, coalesce(lanes.slots, held.slots) AS slots,
    coalesce(lanes.limits, held.limits) AS limits, coalesce(lanes.queue, held.queue) AS queue, coalesce(lanes.ready, 0) AS ready,
    coalesce(lanes.tasks, 0) AS tasks, coalesce(held.ready, 0) AS is_ready, coalesce(held.tasks, 0) AS has_tasks
  FROM lanes FULL JOIN held ON held.lane = lanes.digest
)
SELECT 0::bigint, pool, NULL::bigint, NULL::text, NULL::text, counted, held FROM pools WHERE counted <> held
UNION ALL
SELECT 1, pool, NULL, NULL, NULL, raw, held FROM pools WHERE counted = held AND raw < held
UNION ALL
SELECT 2, key, NULL, NULL, NULL, counted, held FROM limits WHERE counted <> held
UNION ALL
SELECT 3, key, NULL, NULL, NULL, raw, held FROM limits WHERE counted = held AND raw < held
UNION ALL
SELECT 4, key, NULL, NULL, NULL, lanes, named FROM limits WHERE lanes <> named
UNION ALL
SELECT 5, pool, slots, limits, queue, ready, is_ready FROM counts WHERE ready <> is_ready
UNION ALL
SELECT 6, pool, slots, limits, queue, tasks, has_tasks FROM counts WHERE tasks <> has_tasks
UNION ALL
SELECT 7, pool, NULL, share, NULL, counted, held FROM shares WHERE counted <> held
UNION ALL
SELECT 8, pool, NULL, share, NULL, lanes, named FROM shares WHERE lanes <> named
