-- Returns the debts of these keys to rates: key, owed, at, starts, period. Beside each is the latest instant at
-- which any key took a token. If none of these keys has a debt, one row without a key.
-- $1: keys.
SELECT owes.key, owes.owed, owes.at, owes.starts, owes.period, last.at
FROM (SELECT at FROM sm.rate_use ORDER BY at DESC LIMIT 1) last
LEFT JOIN (
  SELECT given.key, was.* FROM unnest($1::text[]) given (key)
  CROSS JOIN LATERAL (
    SELECT owed, at, starts, period FROM sm.rate_use WHERE rate_use.key = given.key ORDER BY version DESC LIMIT 1) was
) owes ON true
