-- Writes the leases of shards that still have the epoch on which the decision was based, and returns which of
-- those given were, counted from 1. The epoch is tested under the lock of the shard's row.
-- $1 to $5: shards, the epochs decided on, holders, epochs and ends of the leases; no shard and epoch twice.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
    given (shard, was, holder, epoch, expires_at, place)
),
held AS MATERIALIZED (
  SELECT given.*
  FROM (SELECT * FROM given ORDER BY given.shard) given
  CROSS JOIN LATERAL (
    SELECT FROM sm.shard WHERE shard.shard = given.shard AND shard.epoch = given.was FOR NO KEY UPDATE
  ) shard
),
put AS (
  UPDATE sm.shard SET holder = held.holder, epoch = held.epoch, expires_at = held.expires_at
  FROM held
  WHERE shard.shard = ANY (ARRAY(SELECT held.shard FROM held)) AND shard.shard = held.shard
  RETURNING held.place
),
-- Who takes a shard that was never held waits for who does the same, and then finds it taken.
new AS (
  INSERT INTO sm.shard (shard, holder, epoch, expires_at)
  SELECT given.shard, given.holder, given.epoch, given.expires_at FROM given
  WHERE given.was = 0 AND NOT EXISTS (SELECT FROM sm.shard WHERE shard.shard = given.shard OFFSET 0)
  ORDER BY given.shard
  ON CONFLICT (shard) DO NOTHING
  RETURNING shard
)
SELECT place FROM put
UNION ALL
SELECT given.place FROM given WHERE given.was = 0 AND (given.shard IN (SELECT shard FROM new)) IS TRUE
