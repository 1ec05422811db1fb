-- A part of the statements on a window: the runs that are active in it, after the place.
-- first: how each namespace's runs are limited, if they are.
-- Runs that start in the window after the place, and do not stop before they start.
SELECT asked.name, {columns}
FROM asked
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no
    AND (run.start, run.id) > (greatest($2::bigint, $4::bigint), asked.low) AND run.start < $3::bigint
    AND (run.stop IS NULL OR run.stop >= $2::bigint)
    {filters}
  {first}
  OFFSET 0
) run

UNION ALL
-- Open runs that started before the window. If the place is inside the window, no such run comes after it. Then
-- nothing is read here or in the two parts below.
SELECT asked.name, {columns}
FROM asked
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no AND run.stop IS NULL AND run.start < $2::bigint
    {filters}
  OFFSET 0
) run
WHERE $4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)

UNION ALL
-- Closed runs filed under a node before the window's first instant that stop at the instant or later.
SELECT asked.name, {columns}
FROM asked
CROSS JOIN LATERAL (
  {nodes_before}
) reached
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node = reached.fork AND run.stop >= $2::bigint
    {filters}
  -- Matches the order of the index, so that this index is used.
  ORDER BY run.stop
  OFFSET 0
) run
WHERE $4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)

UNION ALL
-- Closed runs filed under a node at or after the window's first instant that start before the instant.
SELECT asked.name, {columns}
FROM asked
CROSS JOIN LATERAL (
  {nodes_after}
) reached
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node = reached.fork AND run.start < $2::bigint
    {filters}
  -- Matches the order of the index, so that this index is used.
  ORDER BY run.start
  OFFSET 0
) run
WHERE $4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)
