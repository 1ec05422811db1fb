-- As pools. After the place: the slots of tasks that run, are queued, are ready, and sense, each capped at the
-- largest number. Counters, deltas and tasks are read in one statement, hence in one snapshot.
-- $1: names.
WITH
lanes AS MATERIALIZED (
  SELECT lane.digest, part.pool, part.slots, lane.ready, lane.slots_back / lane.slots * part.slots AS slots_back,
    lane.slots AS of_slots
  FROM sm.lane_now lane CROSS JOIN LATERAL sm._pools_of(lane.pool, lane.slots, lane.limits) part
),
-- Parts are grouped by pool, never joined. If the server expects one row, it joins by looping over all.
asked AS MATERIALIZED (
  SELECT pool, array_agg(place) FILTER (WHERE place IS NOT NULL) AS places, sum(back)::bigint AS back, sum(ready) AS ready,
    sum(running) AS running, sum(queued) AS queued, sum(sensing) AS sensing
  FROM (
    SELECT name AS pool, place, 0 AS back, 0 AS ready, 0 AS running, 0 AS queued, 0 AS sensing
    FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
    UNION ALL
    SELECT pool, NULL, slots_back, slots::numeric * greatest(ready, 0), 0, 0, 0 FROM lanes
    UNION ALL
    SELECT lanes.pool, NULL, 0, 0, CASE held.started WHEN 1 THEN held.slots / lanes.of_slots * lanes.slots END,
      CASE held.started WHEN 0 THEN held.slots / lanes.of_slots * lanes.slots END, 0
    FROM (SELECT lane, started, sum(slots)::bigint AS slots FROM sm.lease GROUP BY lane, started) held
    JOIN lanes ON lanes.digest = held.lane
    UNION ALL
    SELECT lanes.pool, NULL, 0, 0, 0, 0, lanes.slots * waiting.count
    FROM (SELECT lane, count(*)::numeric AS count FROM sm.idle WHERE state = 4 GROUP BY lane) waiting
    JOIN lanes ON lanes.digest = waiting.lane
    UNION ALL
    SELECT lanes.pool, NULL, 0, lanes.slots * keeping.count, 0, 0, 0
    FROM (SELECT lane, count(*)::numeric AS count FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL GROUP BY lane) keeping
    JOIN lanes ON lanes.digest = keeping.lane
  ) parts
  GROUP BY pool HAVING count(place) > 0
)
SELECT pool.name, pool.slots, coalesce(was.used, 0) - asked.back, pool.keeps_slots, pool.description, given.place,
  least(coalesce(asked.running, 0), 9223372036854775807)::bigint,
  least(coalesce(asked.queued, 0), 9223372036854775807)::bigint,
  least(asked.ready, 9223372036854775807)::bigint, least(asked.sensing, 9223372036854775807)::bigint
FROM asked
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = asked.pool OFFSET 0) pool
CROSS JOIN LATERAL unnest(asked.places) given (place)
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = asked.pool ORDER BY version DESC LIMIT 1) was ON true
