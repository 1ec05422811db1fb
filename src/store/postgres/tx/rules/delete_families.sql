-- Deletes the definitions of these families, and returns those that existed.
-- $1: prefixes.
DELETE FROM sm.family WHERE prefix = ANY ($1::text[]) RETURNING prefix
