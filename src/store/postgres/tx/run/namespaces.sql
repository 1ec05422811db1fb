-- Records new namespaces. $1 their digests, none twice; $2 their names.
INSERT INTO sm.namespace (no, name)
SELECT given.no, given.name FROM unnest($1::uuid[], $2::text[]) given (no, name)
WHERE NOT EXISTS (SELECT FROM sm.namespace WHERE namespace.no = given.no OFFSET 0)
