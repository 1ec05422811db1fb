-- The lanes that have ready tasks, with the places before which nothing waits but the early tasks.
SELECT digest, no, pool, slots, limits, ready, bound, early FROM sm.lane_now WHERE ready > 0
