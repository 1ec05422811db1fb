-- Deletes runs that started and stopped before an instant, and returns how many. Closed runs are filed under
-- nodes between their start and their stop, so two kinds of nodes hold all of them. Runs that somebody else has
-- locked are passed over, and others take their places.
-- $1 the instant; $2 its forks; $3 and $4 the first and the last of the nodes between these; $5 how many.
WITH
asked AS MATERIALIZED (SELECT no FROM sm.namespace GROUP BY no),
stopped AS MATERIALIZED (
  SELECT * FROM (
    -- Every run under a node between two forks stopped before the instant.
    SELECT run.ns, run.id
    FROM asked
    CROSS JOIN unnest($3::bigint[], $4::bigint[]) span (low, high)
    CROSS JOIN LATERAL (
      SELECT ns, id FROM sm.run
      WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node BETWEEN span.low AND span.high
      FOR UPDATE SKIP LOCKED
    ) run
    UNION ALL
    -- Under a fork some stopped later.
    SELECT run.ns, run.id
    FROM asked
    CROSS JOIN unnest($2::bigint[]) given (fork)
    CROSS JOIN LATERAL (
      SELECT ns, id FROM sm.run
      WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node = given.fork AND run.stop < $1::bigint
      FOR UPDATE SKIP LOCKED
    ) run
  ) found
  LIMIT $5::bigint
),
gone AS (
  DELETE FROM sm.run
  WHERE ns = ANY (ARRAY(SELECT DISTINCT ns FROM stopped)) AND id = ANY (ARRAY(SELECT id FROM stopped))
    AND (ns, id) IN (SELECT ns, id FROM stopped)
  RETURNING 1
)
SELECT count(*) FROM gone
