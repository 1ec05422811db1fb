-- Returns the runs that are active in a window, of some statuses, workflows, methods or users, unordered.
-- $1 the namespaces' digests, an empty array for all; $2 and $3 the window's first instant and its end;
-- $4, $5 and $6 the start, the namespace and the id of the place to continue after; $7 how many;
-- $8 to $11 the statuses, workflows, start methods and users, an empty array for any.
WITH
-- The requested namespaces, and the id after which each continues if its next run starts at the place's
-- instant. Runs with the same start are ordered by namespace, then by id. A namespace before the place's one
-- continues after every id: no id is as long as 129 of the highest character. The place's namespace continues
-- after the place's id. Later namespaces begin with the first id, and so do all if the place is before the
-- window.
asked AS MATERIALIZED (
  SELECT named.no, named.name,
    CASE WHEN $4::bigint < $2::bigint OR named.name > $5::text THEN ''
      WHEN named.name = $5::text THEN $6::text
      ELSE repeat(chr(1114111), 129) END COLLATE "C" AS low
  FROM (
    SELECT given.no, namespace.name
    FROM unnest($1::uuid[]) given (no)
    CROSS JOIN LATERAL (SELECT name FROM sm.namespace WHERE namespace.no = given.no LIMIT 1) namespace
    UNION ALL
    SELECT no, min(name) FROM sm.namespace WHERE cardinality($1::uuid[]) = 0 GROUP BY no
  ) named
)
-- Runs that start in the window after the place, and do not stop before they start.
SELECT asked.name, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM asked
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no
    AND (run.start, run.id) > (greatest($2::bigint, $4::bigint), asked.low) AND run.start < $3::bigint
    AND (run.stop IS NULL OR run.stop >= $2::bigint)
    AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[]))
    AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[]))
    AND (cardinality($10::bigint[]) = 0 OR run.method = ANY ($10::bigint[]))
    AND (cardinality($11::text[]) = 0 OR run."user" = ANY ($11::text[]))
  OFFSET 0
) run

UNION ALL
-- Open runs that started before the window. If the place is inside the window, no such run comes after it. Then
-- nothing is read here or in the two parts below.
SELECT asked.name, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM asked
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no AND run.stop IS NULL AND run.start < $2::bigint
    AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[]))
    AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[]))
    AND (cardinality($10::bigint[]) = 0 OR run.method = ANY ($10::bigint[]))
    AND (cardinality($11::text[]) = 0 OR run."user" = ANY ($11::text[]))
  OFFSET 0
) run
WHERE $4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)

UNION ALL
-- Closed runs filed under a node before the window's first instant that stop at the instant or later. On each
-- level only one node can hold such runs: the bits of the instant above the level's, plus that bit. It is 1 to
-- `after` before the instant. Levels without such a node are dropped here.
SELECT asked.name, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM asked
CROSS JOIN LATERAL (
  SELECT (($2::bigint & level.mask) | level.bit) AS fork
  FROM (
    SELECT bit, max(mask) AS mask, max(before) AS before, max(after) AS after
    FROM sm.level WHERE level.ns = asked.no GROUP BY bit
  ) level
  WHERE $2::bigint - (($2::bigint & level.mask) | level.bit) BETWEEN 1 AND level.after
  OFFSET 0
) reached
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node = reached.fork AND run.stop >= $2::bigint
    AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[]))
    AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[]))
    AND (cardinality($10::bigint[]) = 0 OR run.method = ANY ($10::bigint[]))
    AND (cardinality($11::text[]) = 0 OR run."user" = ANY ($11::text[]))
  -- Matches the order of the index, so that this index is used.
  ORDER BY run.stop
  OFFSET 0
) run
WHERE $4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)

UNION ALL
-- Closed runs filed under a node at or after the window's first instant that start before the instant. Again
-- one node per level. It is 0 to `before - 1` after the instant.
SELECT asked.name, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM asked
CROSS JOIN LATERAL (
  SELECT (($2::bigint & level.mask) | level.bit) AS fork
  FROM (
    SELECT bit, max(mask) AS mask, max(before) AS before, max(after) AS after
    FROM sm.level WHERE level.ns = asked.no GROUP BY bit
  ) level
  WHERE (($2::bigint & level.mask) | level.bit) - $2::bigint BETWEEN 0 AND level.before - 1
  OFFSET 0
) reached
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node = reached.fork AND run.start < $2::bigint
    AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[]))
    AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[]))
    AND (cardinality($10::bigint[]) = 0 OR run.method = ANY ($10::bigint[]))
    AND (cardinality($11::text[]) = 0 OR run."user" = ANY ($11::text[]))
  -- Matches the order of the index, so that this index is used.
  ORDER BY run.start
  OFFSET 0
) run
WHERE $4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)
LIMIT $7::bigint
