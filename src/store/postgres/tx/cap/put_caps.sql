-- Replaces the caps of these subjects, each named once. A subject without a number loses its cap. The caller
-- holds the tick lock, so no one changes the same caps at once. Returns the places, counted from 1, of those
-- that had one.
-- $1 to $4: one array per column: kind, name, most, strict.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[])
    WITH ORDINALITY given (kind, name, most, strict, place)
),
old AS MATERIALIZED (
  SELECT given.place FROM given
  CROSS JOIN LATERAL (SELECT FROM sm.cap WHERE cap.kind = given.kind AND cap.name = given.name OFFSET 0) was
),
lifted AS (
  DELETE FROM sm.cap WHERE ctid = ANY (ARRAY(
    SELECT was.row FROM given CROSS JOIN LATERAL (
      SELECT ctid AS row FROM sm.cap WHERE cap.kind = given.kind AND cap.name = given.name OFFSET 0) was
    WHERE given.most IS NULL))
),
put AS (
  INSERT INTO sm.cap AS cap (kind, name, most, strict)
  SELECT kind, name, most, strict FROM given WHERE most IS NOT NULL
  ON CONFLICT (kind, name) DO UPDATE SET most = excluded.most, strict = excluded.strict
)
SELECT place FROM old
