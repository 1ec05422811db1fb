-- In one statement: what is counted, what is not folded yet, and what there is.
WITH held AS MATERIALIZED (
  SELECT lane, sum(slots)::bigint AS slots, sum(leases)::bigint AS leases FROM (
    SELECT lane, slots, 1 AS leases FROM sm.lease UNION ALL SELECT lane, slots, 0 FROM sm.idle WHERE slots IS NOT NULL
  ) held GROUP BY lane
),
needs AS MATERIALIZED (SELECT digest AS lane, pool, limits FROM sm.lane UNION SELECT lane, pool, limits FROM sm.delta WHERE pool IS NOT NULL),
back AS MATERIALIZED (SELECT lane, sum(ready)::bigint AS ready, sum(tasks)::bigint AS tasks, sum(slots)::bigint AS slots, sum(leases)::bigint AS leases FROM sm.delta GROUP BY lane),
pools AS (
  SELECT coalesce(used.name, held.pool) AS name, coalesce(used.used, 0) AS raw,
    coalesce(used.used, 0) - coalesce(back.slots, 0) AS counted, coalesce(held.slots, 0) AS held
  FROM (SELECT name, sum(used)::bigint AS used FROM sm.pool_use GROUP BY name) used
  FULL JOIN (SELECT pool, sum(slots)::bigint AS slots FROM held JOIN needs USING (lane) GROUP BY pool) held ON held.pool = used.name
  LEFT JOIN (SELECT pool, sum(slots)::bigint AS slots FROM back JOIN needs USING (lane) GROUP BY pool) back ON back.pool = coalesce(used.name, held.pool)
)
SELECT 'pool', name, counted, held FROM pools WHERE counted <> held OR raw < held
