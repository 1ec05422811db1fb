-- Closes open runs, and returns the places of the closed ones, counted from 1.
-- $1 to $4: digests of namespaces, ids, stops and statuses; no run twice.
WITH
-- Locked in the order of their keys. A run never stops before it starts. Not `stop IS NULL`, because the index
-- of open runs does not find a run by its id.
open AS MATERIALIZED (
  SELECT given.place, given.status, run.ns, run.start, run.id, greatest(given.stop, run.start) AS stop
  FROM (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
      given (ns, id, stop, status, place)
    ORDER BY given.ns, given.id COLLATE "C"
  ) given
  CROSS JOIN LATERAL (
    SELECT ns, start, id FROM sm.run
    WHERE run.ns = given.ns AND run.id = given.id AND num_nulls(run.stop) = 1
    FOR NO KEY UPDATE
  ) run
),
-- The node of each, as `run::index::node` computes it. `a` has the bits in which the number before the start
-- and the stop differ. `b` to `g` spread the highest of them to all lower bits.
filed AS MATERIALIZED (
  SELECT open.*, CASE WHEN a.x < 0 THEN 0 ELSE open.stop & ~(g.x >> 1) END AS node
  FROM open
  CROSS JOIN LATERAL (SELECT (open.start - 1) # open.stop AS x OFFSET 0) a
  CROSS JOIN LATERAL (SELECT a.x | (a.x >> 1) AS x OFFSET 0) b
  CROSS JOIN LATERAL (SELECT b.x | (b.x >> 2) AS x OFFSET 0) c
  CROSS JOIN LATERAL (SELECT c.x | (c.x >> 4) AS x OFFSET 0) d
  CROSS JOIN LATERAL (SELECT d.x | (d.x >> 8) AS x OFFSET 0) e
  CROSS JOIN LATERAL (SELECT e.x | (e.x >> 16) AS x OFFSET 0) f
  CROSS JOIN LATERAL (SELECT f.x | (f.x >> 32) AS x OFFSET 0) g
),
-- By the key, because a run that was replaced while this statement waited for it may have another start.
closed AS (
  UPDATE sm.run SET stop = filed.stop, node = filed.node, status = filed.status
  FROM filed
  WHERE run.ns = filed.ns AND run.id = filed.id
),
-- How far these runs reach before and after the nodes of their levels. The level of a node is its lowest set bit.
reach AS MATERIALIZED (
  SELECT ns, bit, CASE bit WHEN 0 THEN 0 ELSE ~(bit | (bit - 1)) END AS mask, max(node - start) AS before,
    max(stop - node) AS after
  FROM filed
  CROSS JOIN LATERAL (SELECT node & -node AS bit OFFSET 0) level
  GROUP BY ns, bit
),
{farther}
SELECT place FROM filed
