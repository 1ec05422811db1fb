-- Replaces the debts of keys to rates, and deletes keys whose debt is paid. The key that took a token last is
-- kept, because it keeps the clock.
-- $1 to $5: one array per column: key, owed, at, starts, period. $6: full at. $7: the most keys to delete.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    given (key, owed, at, starts, period, full_at)
),
full_ones AS MATERIALIZED (
  SELECT ctid AS row FROM sm.rate_use
  WHERE full_at <= (SELECT max(at) FROM given) AND key <> ALL ($1::text[])
  ORDER BY full_at, key LIMIT $7::bigint
),
gone AS (
  DELETE FROM sm.rate_use WHERE ctid = ANY (ARRAY(
    SELECT row FROM full_ones
    UNION ALL
    SELECT was.row FROM given CROSS JOIN LATERAL (
      SELECT ctid AS row FROM sm.rate_use WHERE rate_use.key = given.key ORDER BY version DESC LIMIT 1) was))
)
INSERT INTO sm.rate_use (key, version, owed, at, starts, period, full_at)
SELECT key, nextval('sm.version'), owed, at, starts, period, full_at FROM given
