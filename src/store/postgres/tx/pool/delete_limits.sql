-- Deletes the limits of these keys, and returns those that were defined.
-- $1: keys.
DELETE FROM sm.task_limit WHERE key = ANY ($1::text[]) RETURNING key
