-- Returns the size of each table on disk, with its indexes and long values: name, bytes; the largest first.
SELECT relname::text, coalesce(pg_total_relation_size(oid), 0) AS bytes FROM pg_class
WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'sm.task'::regclass) AND relkind = 'r'
ORDER BY bytes DESC, relname
