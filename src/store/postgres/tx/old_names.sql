-- Returns whether there are names that no transaction has passed to serialize for a day.
SELECT EXISTS (
  SELECT FROM sm.turn WHERE at < (SELECT ((extract(epoch FROM clock_timestamp()) - 86400) * 1000000)::bigint))
