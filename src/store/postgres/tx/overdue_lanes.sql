-- The needs of these lanes, whether or not they are folded.
-- $1: digests.
SELECT digest, no, pool, slots, limits, queue FROM sm.lane_now WHERE digest = ANY ($1::uuid[])
