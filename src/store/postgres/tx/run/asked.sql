-- A part of the statements on a window.
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
