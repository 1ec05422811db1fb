-- Returns the last task of the page after this one.
-- $1: a task's number. $2: the page size.
SELECT max(no) FROM (SELECT no FROM sm.task WHERE no > $1::bigint ORDER BY no LIMIT $2::bigint) page
