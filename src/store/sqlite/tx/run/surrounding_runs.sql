-- Returns the runs that started before an instant and are active at it, or their places.
-- ?1 the namespaces' names as a JSON array, or NULL for all; ?2 the instant.
WITH
-- The requested namespaces, by number.
asked (no, name) AS MATERIALIZED (
  SELECT no, name
  {namespaces}
)
{surrounding}
