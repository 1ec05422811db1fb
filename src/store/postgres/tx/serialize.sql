-- Waits until no other transaction that gave one of these names is open, and makes those wait that give one
-- from now on. At READ COMMITTED the next statement sees what they committed. Above, the server refuses a row
-- that has changed since the transaction's view, instead of letting it decide on that view.
-- $1: the names, each once.
INSERT INTO sm.turn AS turn (name, at)
SELECT name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM unnest($1::text[]) given (name)
ORDER BY name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET at = greatest(turn.at, excluded.at)
