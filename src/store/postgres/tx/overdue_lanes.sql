-- Returns the needs of these lanes, folded or not.
-- $1: digests.
SELECT digest, no, pool, slots, limits, queue FROM sm.lane_now WHERE digest = ANY ($1::uuid[])
