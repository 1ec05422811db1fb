-- Writes the leases of shards, and of kinds of shards, that still have the epoch and the end on which the
-- decision was based. Returns the places of those written, counted from 1. Both are tested under the lock of
-- the lease's row. A renewal keeps the epoch, so the end must match as well: otherwise a worker could take a
-- lease that was renewed after it read it. The lease of a kind is deleted if it is given without a holder.
-- $1 to $7: shards, the epochs decided on, holders, epochs and ends of the leases, kinds, empty for the shard,
-- the ends decided on, NULL for any, and loads; no shard, kind and epoch twice.
WITH
given AS MATERIALIZED (
  SELECT *
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[],
      $8::bigint[])
    WITH ORDINALITY given (shard, was, holder, epoch, expires_at, kind, ended, load, place)
),
held AS MATERIALIZED (
  SELECT given.*
  FROM (SELECT * FROM given ORDER BY given.shard, given.kind COLLATE "C") given
  CROSS JOIN LATERAL (
    SELECT FROM sm.shard
    WHERE shard.shard = given.shard AND shard.kind = given.kind AND shard.epoch = given.was
      AND shard.expires_at = coalesce(given.ended, shard.expires_at)
    FOR NO KEY UPDATE
  ) shard
),
put AS (
  UPDATE sm.shard SET holder = held.holder, epoch = held.epoch, expires_at = held.expires_at, load = held.load
  FROM held
  WHERE shard.shard = ANY (ARRAY(SELECT held.shard FROM held)) AND shard.shard = held.shard
    AND shard.kind = held.kind AND (held.kind = '' OR held.holder IS NOT NULL)
  RETURNING held.place
),
gone AS (
  DELETE FROM sm.shard USING held
  WHERE shard.shard = ANY (ARRAY(SELECT held.shard FROM held)) AND shard.shard = held.shard
    AND shard.kind = held.kind AND held.kind <> '' AND held.holder IS NULL
  RETURNING held.place
),
-- Two workers may take a shard that was never held. The second waits for the first, and then finds the shard
-- taken.
new AS (
  INSERT INTO sm.shard (shard, kind, holder, epoch, expires_at, load)
  SELECT given.shard, given.kind, given.holder, given.epoch, given.expires_at, given.load FROM given
  WHERE given.was = 0 AND (given.kind = '' OR given.holder IS NOT NULL) AND NOT EXISTS (
    SELECT FROM sm.shard WHERE shard.shard = given.shard AND shard.kind = given.kind OFFSET 0
  )
  ORDER BY given.shard, given.kind COLLATE "C"
  ON CONFLICT (shard, kind) DO NOTHING
  RETURNING shard, kind
)
SELECT place FROM put
UNION ALL
SELECT place FROM gone
UNION ALL
SELECT given.place FROM given
WHERE given.was = 0 AND ((given.shard, given.kind) IN (SELECT shard, kind FROM new)) IS TRUE
