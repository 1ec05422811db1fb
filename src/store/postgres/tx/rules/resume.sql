-- Resumes subjects. Returns the places, counted from 1, of those that were paused.
-- $1, $2: kinds and names.
WITH old AS MATERIALIZED (
  SELECT given.place, was.row
  FROM (
    SELECT kind, name, min(place) AS place
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY given (kind, name, place) GROUP BY kind, name
  ) given
  CROSS JOIN LATERAL (
    SELECT ctid AS row FROM sm.pause WHERE pause.kind = given.kind AND pause.name = given.name OFFSET 0) was
),
resumed AS (DELETE FROM sm.pause WHERE ctid = ANY (ARRAY(SELECT row FROM old)))
SELECT place FROM old
