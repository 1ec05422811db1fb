-- Returns whether a cap may hold for tasks of these queues or with these limits.
-- $1: queues. $2: limits as JSON arrays, one per lane.
SELECT CASE WHEN EXISTS (SELECT FROM sm.cap) THEN sm._is_capped($1::text[], $2::text[]) ELSE FALSE END
