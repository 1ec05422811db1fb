-- Returns the places of the runs of all namespaces that are active in a window. Reads only indexes. Only runs
-- that start in the window must be checked again, so only their stop is read.
-- ?1 NULL, which means all namespaces; ?2 and ?3 the window's first instant and its end.
WITH
-- All namespaces, by number. The condition is always true: the parameter must occur.
asked (no, name) AS MATERIALIZED (
  SELECT no, name
  FROM sm_namespace
  WHERE ?1 IS NULL
)
-- Runs that start in the window. The caller drops those that stop before they start.
SELECT name, sm_run.id, sm_run.start, stop
FROM asked CROSS JOIN sm_run
WHERE ns = asked.no AND start >= ?2 AND start < ?3

UNION ALL
-- Open runs that started before the window.
SELECT name, sm_run.id, sm_run.start, NULL
FROM asked CROSS JOIN sm_run INDEXED BY sm_run_open
WHERE ns = asked.no AND stop IS NULL AND start < ?2

UNION ALL
-- Closed runs filed under a node before the window's first instant that stop at the instant or later. On each
-- level only one node can hold such runs: the bits of the instant above the level's, plus that bit. It is 1 to
-- `after` before the instant. Levels without such a node are dropped here.
SELECT name, sm_run.id, sm_run.start, NULL
FROM asked CROSS JOIN sm_level CROSS JOIN sm_run INDEXED BY sm_run_node_stop
WHERE sm_level.ns = asked.no AND ?2 - (?2 & mask | bit) BETWEEN 1 AND after
  AND sm_run.ns = asked.no AND node IS NOT NULL AND node = (?2 & mask | bit) AND stop >= ?2

UNION ALL
-- Closed runs filed under a node at or after the window's first instant that start before the instant. Again
-- one node per level. It is 0 to `before - 1` after the instant.
SELECT name, sm_run.id, sm_run.start, NULL
FROM asked CROSS JOIN sm_level CROSS JOIN sm_run INDEXED BY sm_run_node_start
WHERE sm_level.ns = asked.no AND (?2 & mask | bit) - ?2 BETWEEN 0 AND before - 1
  AND sm_run.ns = asked.no AND node IS NOT NULL AND node = (?2 & mask | bit) AND start < ?2
