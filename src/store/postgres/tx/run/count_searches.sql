-- Returns how many index ranges a window searches. Each namespace has two: for the runs that start in the
-- window, and for the open ones. It has one more for each level and side on which runs reach from before the
-- window's first instant to after it.
-- $1 the namespaces' digests, an empty array for all; $2 and $3 the window's first instant and its end;
-- $4, $5 and $6 the start, the namespace and the id of the place to continue after; $7 how many.
WITH
{asked}
SELECT 2 * (SELECT count(*) FROM asked)
  + (SELECT count(*)
     FROM asked
     CROSS JOIN LATERAL (
       {nodes_before}
     ) reached)
  + (SELECT count(*)
     FROM asked
     CROSS JOIN LATERAL (
       {nodes_after}
     ) reached)
