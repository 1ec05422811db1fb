-- Returns how many runs are active in a window.
-- $1 the namespaces' digests, an empty array for all; $2 and $3 the window's first instant and its end;
-- $4, $5 and $6 the start, the namespace and the id of the place to continue after; $7 how many;
-- $8 to $11 the statuses, workflows, start methods and users, an empty array for any, if it filters.
WITH
{asked}
SELECT count(*) FROM (
  {window}
  LIMIT $7::bigint
) found
