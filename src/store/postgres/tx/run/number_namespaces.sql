-- Gives numbers to namespaces that have none. $1 the names, none twice.
INSERT INTO sm.namespace (no, name)
SELECT coalesce((SELECT no FROM sm.namespace ORDER BY no DESC LIMIT 1), 0) + row_number() OVER (), given.name
FROM unnest($1::text[]) given (name)
WHERE NOT EXISTS (SELECT FROM sm.namespace WHERE namespace.name = given.name OFFSET 0)
