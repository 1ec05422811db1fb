-- Returns the caps that hold for tasks of these queues and with these limits, and what waits under each: kind,
-- name, most, strict, waiting. A key has its own cap. If the key itself is not defined, it has that of the
-- family with the longest prefix. Counters, deltas and tasks are read in one statement, hence in one snapshot.
-- Lanes that no cap can concern are excluded before they are counted.
-- $1: queues, NULL for the default one. $2: limits as JSON arrays, one per lane.
WITH
capped AS MATERIALIZED (
  SELECT 0::bigint AS kind, asked.name, found.most, found.strict
  FROM (SELECT DISTINCT coalesce(name, 'default') COLLATE "C" AS name FROM unnest($1::text[]) given (name)) asked
  CROSS JOIN LATERAL (SELECT most, strict FROM sm.cap WHERE cap.kind = 0 AND cap.name = asked.name OFFSET 0) found
  UNION ALL
  SELECT 2, asked.key, found.most, found.strict
  FROM (
    SELECT DISTINCT carried.key COLLATE "C" AS key
    FROM unnest($2::text[]) lane (limits) CROSS JOIN LATERAL sm._carried(lane.limits) carried
  ) asked
  LEFT JOIN LATERAL (SELECT key FROM sm.task_limit WHERE task_limit.key = asked.key OFFSET 0) own ON true
  LEFT JOIN LATERAL (
    SELECT prefix FROM sm.family
    WHERE own.key IS NULL AND starts_with(asked.key, prefix) AND octet_length(prefix) < octet_length(asked.key)
    ORDER BY octet_length(prefix) DESC LIMIT 1) family ON true
  CROSS JOIN LATERAL (
    SELECT most, strict FROM sm.cap
    WHERE cap.kind = CASE WHEN own.key IS NULL THEN 3 ELSE 2 END AND cap.name = coalesce(own.key, family.prefix)
    OFFSET 0) found
),
lanes AS MATERIALIZED (
  SELECT digest, coalesce(queue, 'default') COLLATE "C" AS queue, limits, tasks FROM sm.lane_now
  WHERE coalesce(queue, 'default') = ANY (ARRAY(SELECT name FROM capped WHERE kind = 0))
    OR (limits <> '[]' AND (SELECT bool_or(kind = 2) FROM capped))
),
-- Grouped, never joined. If the server expects one row, it joins by looping over all.
waits AS MATERIALIZED (
  SELECT max(queue) AS queue, max(limits) AS limits, sum(tasks) AS tasks
  FROM (
    SELECT digest, queue, limits, tasks FROM lanes
    UNION ALL
    SELECT digest, NULL, NULL, -sensing.count
    FROM lanes CROSS JOIN LATERAL (
      SELECT count(*) AS count FROM sm.idle WHERE idle.lane = lanes.digest AND state = 4) sensing
    UNION ALL
    SELECT lane, NULL, NULL, -count(*) FROM sm.lease WHERE EXISTS (SELECT FROM lanes) GROUP BY lane
  ) parts
  GROUP BY digest
  HAVING max(queue) IS NOT NULL
)
SELECT kind, name, max(most), max(strict), greatest(coalesce(sum(tasks), 0), 0)::bigint
FROM (
  SELECT kind, name, most, strict, 0 AS tasks FROM capped
  UNION ALL
  SELECT 0, queue, NULL, NULL, tasks FROM waits
  UNION ALL
  SELECT 2, carried.key COLLATE "C", NULL, NULL, waits.tasks
  FROM waits CROSS JOIN LATERAL sm._carried(waits.limits) carried
  WHERE waits.limits <> '[]' AND (SELECT bool_or(kind = 2) FROM capped)
) parts
GROUP BY kind, name
HAVING max(most) IS NOT NULL
ORDER BY kind, name
