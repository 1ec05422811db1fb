-- Returns how many index ranges a window searches. Each namespace has two: for the runs that start in the
-- window, and for the open ones. It has one more for each level and side on which runs reach from before the
-- window's first instant to after it.
-- ?1 NULL, which means all namespaces; ?2 the instant.
WITH
-- All namespaces, by number. The condition is always true: the parameter must occur.
asked (no, name) AS MATERIALIZED (
  SELECT no, name
  FROM sm_namespace
  WHERE ?1 IS NULL
)
SELECT (SELECT 2 * count(*) FROM asked)
  + (SELECT count(*) FROM asked CROSS JOIN sm_level
     WHERE sm_level.ns = asked.no AND ?2 - (?2 & mask | bit) BETWEEN 1 AND after)
  + (SELECT count(*) FROM asked CROSS JOIN sm_level
     WHERE sm_level.ns = asked.no AND (?2 & mask | bit) - ?2 BETWEEN 0 AND before - 1)
