-- Returns the runs that are active in a window, or their places.
-- ?1 the namespaces' names as a JSON array, or NULL for all; ?2 and ?3 the window's first instant and its end.
WITH
-- The requested namespaces, by number.
asked (no, name) AS MATERIALIZED (
  SELECT no, name
  {namespaces}
)
-- Runs that start in the window. The caller drops those that stop before they start.
SELECT name, {first_columns}
FROM asked CROSS JOIN sm_run
WHERE ns = asked.no AND start >= ?2 AND start < ?3

UNION ALL
{surrounding}
