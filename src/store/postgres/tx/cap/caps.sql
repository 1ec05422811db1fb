-- Returns all caps: kind, name, most, strict.
SELECT kind, name, most, strict FROM sm.cap ORDER BY kind, name
