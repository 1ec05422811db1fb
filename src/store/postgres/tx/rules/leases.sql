-- Returns the number of leases by the needs of their tasks: pool, slots, limits, queue, number. Then what is
-- paused: the number is NULL, the slots are the kind, and the pool is the name. One statement, hence one
-- snapshot. A tick folds before it grants, so the lane of a lease is known.
SELECT lane.pool, lane.slots, lane.limits, lane.queue, held.leases
FROM (SELECT lane, count(*) AS leases FROM sm.lease GROUP BY lane) held
CROSS JOIN LATERAL (SELECT pool, slots, limits, queue FROM sm.lane WHERE lane.digest = held.lane OFFSET 0) lane
UNION ALL
SELECT name, kind, NULL, NULL, NULL FROM sm.pause
