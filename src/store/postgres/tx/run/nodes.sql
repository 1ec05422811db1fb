-- A part of the statements on a window: the nodes under which closed runs may be filed that reach from before the
-- window's first instant to after it. On each level only one node can hold such runs: the bits of the instant
-- above the level's, plus that bit. Levels without such a node are dropped here.
-- is_reached: whether runs reach from the node to the instant.
SELECT (($2::bigint & level.mask) | level.bit) AS fork
FROM (
  SELECT bit, max(mask) AS mask, max(before) AS before, max(after) AS after
  FROM sm.level WHERE level.ns = asked.no GROUP BY bit
) level
WHERE {is_reached}
OFFSET 0
