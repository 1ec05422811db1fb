-- The condition is tested under the row's lock, in the statement that writes.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
  WITH ORDINALITY given (shard, was, holder, epoch, expires_at, place)),
put AS (
  INSERT INTO sm.shard AS shard (shard, holder, epoch, expires_at)
  SELECT shard, holder, epoch, expires_at FROM given
  WHERE was = 0 OR EXISTS (SELECT FROM sm.shard held WHERE held.shard = given.shard) ORDER BY shard
  ON CONFLICT (shard) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, expires_at = excluded.expires_at
    WHERE shard.epoch = (SELECT was FROM given WHERE given.shard = excluded.shard)
  RETURNING shard.shard)
SELECT place FROM given JOIN put USING (shard)
