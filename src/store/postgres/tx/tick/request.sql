-- Returns what the tick of this name granted: the numbers of the tasks and their epochs, in order of admission.
-- $1: the name, or NULL.
SELECT nos, epochs FROM sm.request WHERE id = $1::text
