-- The lanes with these numbers or digests, as ready_lanes has them, whether or not tasks are ready there.
-- $1: numbers of lanes. $2: digests.
SELECT digest, no, bound, early FROM sm.lane_now WHERE no = ANY ($1::bigint[])
UNION ALL
SELECT digest, no, bound, early FROM sm.lane_now
WHERE digest = ANY ($2::uuid[]) AND no <> ALL ($1::bigint[])
