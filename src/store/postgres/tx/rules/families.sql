-- The definitions of all families, by prefix.
SELECT prefix, max, starts, period, burst FROM sm.family ORDER BY prefix
