-- Returns the definitions of all families, by prefix.
SELECT prefix, max, starts, period, burst, weight FROM sm.family ORDER BY prefix
