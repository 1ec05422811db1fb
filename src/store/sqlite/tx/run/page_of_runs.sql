-- Returns the first runs that start in a window after a place, or their places.
-- ?1 the namespaces' names as a JSON array, or NULL for all; ?2, ?4 and ?5 the place's start,
-- namespace and id; ?3 the window's end; ?6 how many.
WITH RECURSIVE
-- The requested namespaces, and the id after which each continues if its next run starts at the place's
-- instant. Runs with the same start are ordered by namespace, then by id. A namespace before the place's one
-- continues after every id: a blob sorts after every text. The place's namespace continues after the place's
-- id. Later namespaces begin with the first id.
asked (no, name, low) AS MATERIALIZED (
  SELECT no, name, CASE WHEN name < ?4 THEN x'' WHEN name = ?4 THEN ?5 ELSE '' END
  {namespaces}
),
-- A queue of the next run of each namespace. Each step takes the earliest and adds the next run of its
-- namespace. So at most ?6 runs plus one per namespace are looked up.
merged (no, name, start, id) AS (
  SELECT no, name, run.start, run.id
  FROM asked CROSS JOIN sm_run run
  WHERE ns = asked.no AND (run.start, run.id) = (
    SELECT start, id FROM sm_run
    WHERE ns = asked.no AND (start, id) > (?2, asked.low) AND start < ?3
    ORDER BY start, id LIMIT 1
  )
  UNION ALL
  SELECT no, name, run.start, run.id
  FROM merged CROSS JOIN sm_run run
  WHERE ns = merged.no AND (run.start, run.id) = (
    SELECT start, id FROM sm_run
    WHERE ns = merged.no AND (start, id) > (merged.start, merged.id) AND start < ?3
    ORDER BY start, id LIMIT 1
  )
  ORDER BY 3, 2, 4
  LIMIT ?6
)
SELECT name, {columns}
FROM merged CROSS JOIN sm_run
WHERE ns = merged.no AND sm_run.start = merged.start AND sm_run.id = merged.id
