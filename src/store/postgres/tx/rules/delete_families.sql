-- Removes the definitions of these families, and returns those that there were.
-- $1: prefixes.
DELETE FROM sm.family WHERE prefix = ANY ($1::text[]) RETURNING prefix
