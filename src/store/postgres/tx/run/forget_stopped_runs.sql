-- Deletes runs that started and stopped before an instant, and returns how many. Closed runs are filed under
-- nodes between their start and their stop, so two kinds of nodes hold all of them. Runs locked by other
-- transactions are skipped and replaced by others.
-- $1 the instant; $2 its forks; $3 and $4 the first and the last of the nodes between these; $5 how many.
WITH
asked AS MATERIALIZED (SELECT no FROM sm.namespace GROUP BY no),
stopped AS MATERIALIZED (
  SELECT * FROM (
    -- Every run under a node between two forks stopped before the instant.
    SELECT run.at
    FROM asked
    CROSS JOIN unnest($3::bigint[], $4::bigint[]) span (low, high)
    CROSS JOIN LATERAL (
      SELECT ctid AS at FROM sm.run
      WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node BETWEEN span.low AND span.high
      FOR UPDATE SKIP LOCKED
    ) run
    UNION ALL
    -- Under a fork, some stopped later.
    SELECT run.at
    FROM asked
    CROSS JOIN unnest($2::bigint[]) given (fork)
    CROSS JOIN LATERAL (
      SELECT ctid AS at FROM sm.run
      WHERE run.ns = asked.no AND run.node IS NOT NULL AND run.node = given.fork AND run.stop < $1::bigint
      FOR UPDATE SKIP LOCKED
    ) run
  ) found
  LIMIT $5::bigint
),
-- A run that was changed since this statement began is not found by its ctid, and is left for the next call.
gone AS (DELETE FROM sm.run WHERE ctid = ANY (ARRAY(SELECT at FROM stopped)) RETURNING 1)
SELECT count(*) FROM gone
