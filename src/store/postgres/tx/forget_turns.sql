-- Forgets names that no transaction has given for a day. Those that one is giving now are passed over.
-- $1: how many at most.
WITH
old AS MATERIALIZED (
  SELECT name FROM sm.turn
  WHERE at < (extract(epoch FROM clock_timestamp() - interval '1 day') * 1000000)::bigint
  ORDER BY at
  LIMIT $1::bigint
  FOR UPDATE SKIP LOCKED
)
DELETE FROM sm.turn WHERE name = ANY (ARRAY(SELECT name FROM old))
