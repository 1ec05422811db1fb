-- Releases the shards of a worker. They are locked in their order, as by whoever takes them. $1 the worker's name.
WITH
given AS MATERIALIZED (SELECT shard FROM sm.shard WHERE holder = $1::text),
held AS MATERIALIZED (
  SELECT shard.shard
  FROM (SELECT * FROM given ORDER BY given.shard) given
  CROSS JOIN LATERAL (
    SELECT shard FROM sm.shard WHERE shard.shard = given.shard AND shard.holder = $1::text FOR NO KEY UPDATE
  ) shard
)
UPDATE sm.shard SET holder = NULL, epoch = epoch + 1 WHERE shard = ANY (ARRAY(SELECT shard FROM held))
