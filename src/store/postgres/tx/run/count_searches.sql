-- Returns how many index ranges a window searches. Each namespace has two: for the runs that start in the
-- window, and for the open ones. It has one more for each level and side on which runs reach from before the
-- window's first instant to after it.
-- $1 the namespaces' digests, an empty array for all; $2 and $3 the window's first instant and its end;
-- $4, $5 and $6 the start, the namespace and the id of the place to continue after; $7 how many.
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
SELECT 2 * (SELECT count(*) FROM asked)
  + (SELECT count(*)
     FROM asked
     CROSS JOIN LATERAL (
       SELECT (($2::bigint & level.mask) | level.bit) AS fork
       FROM (
         SELECT bit, max(mask) AS mask, max(before) AS before, max(after) AS after
         FROM sm.level WHERE level.ns = asked.no GROUP BY bit
       ) level
       WHERE $2::bigint - (($2::bigint & level.mask) | level.bit) BETWEEN 1 AND level.after
       OFFSET 0
     ) reached)
  + (SELECT count(*)
     FROM asked
     CROSS JOIN LATERAL (
       SELECT (($2::bigint & level.mask) | level.bit) AS fork
       FROM (
         SELECT bit, max(mask) AS mask, max(before) AS before, max(after) AS after
         FROM sm.level WHERE level.ns = asked.no GROUP BY bit
       ) level
       WHERE (($2::bigint & level.mask) | level.bit) - $2::bigint BETWEEN 0 AND level.before - 1
       OFFSET 0
     ) reached)
