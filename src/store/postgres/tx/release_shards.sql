-- Releases the shards of a worker, and deletes its leases of single kinds. They are locked in their order, as
-- when they are taken. $1 the worker's name.
WITH
given AS MATERIALIZED (SELECT shard, kind FROM sm.shard WHERE holder = $1::text),
held AS MATERIALIZED (
  SELECT shard.shard
  FROM (SELECT * FROM given ORDER BY given.shard, given.kind) given
  CROSS JOIN LATERAL (
    SELECT shard FROM sm.shard
    WHERE shard.shard = given.shard AND shard.kind = given.kind AND shard.holder = $1::text FOR UPDATE
  ) shard
),
-- Both parts use the rows found above. They count the held leases, which forces all of them to be locked first.
gone AS (
  DELETE FROM sm.shard WHERE holder = $1::text AND kind <> '' AND (SELECT count(*) FROM held) > 0
)
UPDATE sm.shard SET holder = NULL, epoch = epoch + 1
WHERE holder = $1::text AND kind = '' AND (SELECT count(*) FROM held) > 0
