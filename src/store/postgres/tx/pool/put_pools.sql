-- Creates pools or changes them. What tasks hold of them is stored separately, and stays.
-- $1 to $4: one array per column: name, slots or NULL, whether sensing tasks keep slots, description.
INSERT INTO sm.pool AS pool (name, slots, keeps_slots, description)
SELECT name, slots, keeps_slots, description
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) given (name, slots, keeps_slots, description)
ON CONFLICT (name) DO UPDATE
SET slots = excluded.slots, keeps_slots = excluded.keeps_slots, description = excluded.description
