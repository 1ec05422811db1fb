-- As pools, and behind the place: the slots of tasks that run, are queued, are ready, and sense, at most the
-- largest number each. Counters, deltas and tasks in one statement, hence in one snapshot.
-- $1: names.
WITH
lanes AS MATERIALIZED (SELECT digest, pool, slots, ready, slots_back FROM sm.lane_now),
back AS MATERIALIZED (
  SELECT pool, sum(slots_back)::bigint AS slots, sum(slots::numeric * greatest(ready, 0)) AS ready
  FROM lanes GROUP BY pool
),
held AS MATERIALIZED (
  SELECT lanes.pool, sum(held.slots) FILTER (WHERE held.started = 1) AS running,
    sum(held.slots) FILTER (WHERE held.started = 0) AS queued
  FROM (SELECT lane, started, sum(slots) AS slots FROM sm.lease GROUP BY lane, started) held
  JOIN lanes ON lanes.digest = held.lane
  GROUP BY lanes.pool
),
sensing AS MATERIALIZED (
  SELECT lanes.pool, sum(lanes.slots * waiting.count) AS slots
  FROM (SELECT lane, count(*)::numeric AS count FROM sm.idle WHERE state = 4 GROUP BY lane) waiting
  JOIN lanes ON lanes.digest = waiting.lane
  GROUP BY lanes.pool
)
SELECT pool.name, pool.slots, coalesce(was.used, 0) - coalesce(back.slots, 0), pool.keeps_slots, pool.description,
  given.place, least(coalesce(held.running, 0), 9223372036854775807)::bigint,
  least(coalesce(held.queued, 0), 9223372036854775807)::bigint,
  least(coalesce(back.ready, 0), 9223372036854775807)::bigint,
  least(coalesce(sensing.slots, 0), 9223372036854775807)::bigint
FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
LEFT JOIN LATERAL (
  SELECT used FROM sm.pool_use WHERE pool_use.name = given.name ORDER BY version DESC LIMIT 1) was ON true
LEFT JOIN back ON back.pool = given.name
LEFT JOIN held ON held.pool = given.name
LEFT JOIN sensing ON sensing.pool = given.name
