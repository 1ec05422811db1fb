-- Waits until no other open transaction has passed one of these names, and blocks later ones that pass one. At
-- READ COMMITTED the next statement sees what they committed. At a higher level the server refuses a row that
-- has changed since the transaction's snapshot, so no decision is based on that snapshot.
-- $1: the names, each once.
INSERT INTO sm.turn AS turn (name, at)
SELECT name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM unnest($1::text[]) given (name)
ORDER BY name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET at = greatest(turn.at, excluded.at)
