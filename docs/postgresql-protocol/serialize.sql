INSERT INTO sm.turn AS turn (name, at) SELECT name, $2::bigint FROM unnest($1::text[]) given (name) GROUP BY name ORDER BY name
ON CONFLICT (name) DO UPDATE SET at = greatest(turn.at, excluded.at)
