INSERT INTO sm.namespace (no, name)
SELECT given.no, given.name FROM (
  SELECT encode(substr(sha256(convert_to(name, 'UTF8')), 1, 16), 'hex')::uuid AS no, name FROM unnest($1::text[]) given (name)) given
WHERE NOT EXISTS (SELECT FROM sm.namespace WHERE namespace.no = given.no)
