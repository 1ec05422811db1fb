-- Returns how many index ranges a window searches. Each namespace has two: for the runs that start in the
-- window, and for the open ones. It has one more for each level and side on which runs reach from before the
-- window's first instant to after it.
-- ?1 the namespaces' names as a JSON array, or NULL for all; ?2 the instant.
WITH
-- The requested namespaces, by number.
asked (no, name) AS MATERIALIZED (
  SELECT no, name
  {namespaces}
)
SELECT (SELECT 2 * count(*) FROM asked)
  + (SELECT count(*) FROM asked CROSS JOIN sm_level
     WHERE sm_level.ns = asked.no AND ?2 - (?2 & mask | bit) BETWEEN 1 AND after)
  + (SELECT count(*) FROM asked CROSS JOIN sm_level
     WHERE sm_level.ns = asked.no AND (?2 & mask | bit) - ?2 BETWEEN 0 AND before - 1)
