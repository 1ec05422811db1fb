-- Returns the first runs that are active in a window.
-- $1 the namespaces' digests, an empty array for all; $2 and $3 the window's first instant and its end;
-- $4, $5 and $6 the start, the namespace and the id of the place to continue after; $7 how many;
-- $8 to $11 the statuses, workflows, start methods and users, an empty array for any, if it filters.
WITH
{asked},
-- Runs that surround the window's first instant are unordered, so all their places are sorted. Of the runs that
-- start in the window, each namespace contributes at most a page.
place AS MATERIALIZED (
  SELECT * FROM (
    {window}
  ) found
  ORDER BY found.start, found.name, found.id
  LIMIT $7::bigint
)
-- Reads only the records of these places.
SELECT place.name, run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running,
  run.heartbeat, run."user", run.suspended, run.nodes, run.attributes
FROM place
CROSS JOIN LATERAL (
  SELECT * FROM sm.run
  WHERE run.ns = place.no AND run.start = place.start AND run.id = place.id
  OFFSET 0
) run
