-- Returns the lanes with these numbers or digests, in the columns of ready_lanes, whether or not they have
-- ready tasks.
-- $1: numbers of lanes. $2: digests.
SELECT digest, no, bound, early FROM sm.lane_now WHERE no = ANY ($1::bigint[])
UNION ALL
SELECT digest, no, bound, early FROM sm.lane_now
WHERE digest = ANY ($2::uuid[]) AND no <> ALL ($1::bigint[])
