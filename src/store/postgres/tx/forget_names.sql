-- Deletes names that no transaction has passed to serialize for a day. Skips names in use right now.
-- $1: how many.
DELETE FROM sm.turn WHERE name = ANY (ARRAY(
  SELECT name FROM sm.turn
  WHERE at < (SELECT ((extract(epoch FROM clock_timestamp()) - 86400) * 1000000)::bigint)
  ORDER BY at, name
  LIMIT $1::bigint
  FOR UPDATE SKIP LOCKED))
