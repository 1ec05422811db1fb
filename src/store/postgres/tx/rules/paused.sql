-- Returns what is paused: kind and name.
SELECT kind, name FROM sm.pause ORDER BY kind, name
