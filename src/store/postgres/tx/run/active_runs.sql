-- Returns the runs that are active in a window, unordered, or their places.
-- $1 the namespaces' digests, an empty array for all; $2 and $3 the window's first instant and its end;
-- $4, $5 and $6 the start, the namespace and the id of the place to continue after; $7 how many;
-- $8 to $11 the statuses, workflows, start methods and users, an empty array for any, if it filters.
WITH
{asked}
{window}
LIMIT $7::bigint
