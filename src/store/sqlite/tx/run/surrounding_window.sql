-- A part of the statements on a window: the runs that started before it and are active in it.
-- Open runs that started before the window.
SELECT name, {columns}
FROM asked CROSS JOIN sm_run INDEXED BY sm_run_open
WHERE ns = asked.no AND stop IS NULL AND start < ?2

UNION ALL
-- Closed runs filed under a node before the window's first instant that stop at the instant or later. On each
-- level only one node can hold such runs: the bits of the instant above the level's, plus that bit. It is 1 to
-- `after` before the instant. Levels without such a node are dropped here.
SELECT name, {columns}
FROM asked CROSS JOIN sm_level CROSS JOIN sm_run INDEXED BY sm_run_node_stop
WHERE sm_level.ns = asked.no AND ?2 - (?2 & mask | bit) BETWEEN 1 AND after
  AND sm_run.ns = asked.no AND node IS NOT NULL AND node = (?2 & mask | bit) AND stop >= ?2

UNION ALL
-- Closed runs filed under a node at or after the window's first instant that start before the instant. Again
-- one node per level. It is 0 to `before - 1` after the instant.
SELECT name, {columns}
FROM asked CROSS JOIN sm_level CROSS JOIN sm_run INDEXED BY sm_run_node_start
WHERE sm_level.ns = asked.no AND (?2 & mask | bit) - ?2 BETWEEN 0 AND before - 1
  AND sm_run.ns = asked.no AND node IS NOT NULL AND node = (?2 & mask | bit) AND start < ?2
