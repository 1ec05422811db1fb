-- Makes transactions that give the same name take turns until they commit. Who comes second waits for the row.
-- At READ COMMITTED its next statement then sees what the first one committed; at the higher levels it fails
-- (40001) instead of deciding on an older view, which an advisory lock would not do.
-- $1: names, sorted, each once.
INSERT INTO sm.turn AS turn (name, at)
SELECT given.name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM unnest($1::text[]) WITH ORDINALITY given (name, place)
ORDER BY given.place
ON CONFLICT (name) DO UPDATE SET at = greatest(turn.at, excluded.at)
