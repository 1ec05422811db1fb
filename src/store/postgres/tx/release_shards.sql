-- Releases the shards of a worker, and deletes its leases of single kinds. They are locked in their order, as by whoever
-- takes them. $1 the worker's name.
WITH
given AS MATERIALIZED (SELECT shard, kind FROM sm.shard WHERE holder = $1::text),
held AS MATERIALIZED (
  SELECT shard.shard, shard.kind
  FROM (SELECT * FROM given ORDER BY given.shard, given.kind) given
  CROSS JOIN LATERAL (
    SELECT shard, kind FROM sm.shard
    WHERE shard.shard = given.shard AND shard.kind = given.kind AND shard.holder = $1::text FOR UPDATE
  ) shard
),
gone AS (
  DELETE FROM sm.shard
  WHERE shard = ANY (ARRAY(SELECT shard FROM held)) AND kind <> '' AND holder = $1::text
)
UPDATE sm.shard SET holder = NULL, epoch = epoch + 1
WHERE shard = ANY (ARRAY(SELECT shard FROM held WHERE held.kind = '')) AND kind = '' AND holder = $1::text
