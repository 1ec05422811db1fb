-- How many ranges of indexes a window searches: for each namespace two, for the runs that start in it and the
-- open ones, and one for each level and side on which runs reach from before its first instant to after it.
-- ?1 NULL, which stands for all namespaces; ?2 the instant.
WITH
-- All namespaces, by number. The condition always holds: the parameter must occur.
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
