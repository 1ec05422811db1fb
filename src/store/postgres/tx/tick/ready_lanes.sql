-- The lanes that have ready tasks, with the places before which nothing waits but the early tasks.
-- $1: the queues whose lanes are asked for, or NULL for all.
SELECT digest, no, pool, slots, limits, queue, ready, bound, early FROM sm.lane_now
WHERE ready > 0 AND ($1::text[] IS NULL OR coalesce(queue, 'default') = ANY ($1::text[]))
