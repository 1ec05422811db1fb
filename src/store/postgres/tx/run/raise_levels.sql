-- Records how far runs reach before and after the nodes of a level, if that is farther than any did before.
-- $1 to $5: digests of namespaces, levels, the bits above each, and how far before and after; no level twice.
WITH
reach AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
    reach (ns, bit, mask, before, after)
),
{farther}
SELECT count(*) FROM farther
