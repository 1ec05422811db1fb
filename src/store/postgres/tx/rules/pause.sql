-- Pauses subjects. Returns the places, counted from 1, of those that were not paused. The caller holds the tick
-- lock, so no one pauses the same subjects at once.
-- $1, $2: kinds and names.
WITH new AS MATERIALIZED (
  SELECT given.kind, given.name, given.place
  FROM (
    SELECT kind, name, min(place) AS place
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY given (kind, name, place) GROUP BY kind, name
  ) given
  LEFT JOIN LATERAL (
    SELECT true AS is_there FROM sm.pause WHERE pause.kind = given.kind AND pause.name = given.name OFFSET 0) was ON true
  WHERE was.is_there IS NULL
),
paused AS (INSERT INTO sm.pause (kind, name) SELECT kind, name FROM new)
SELECT place FROM new
