-- Closes runs that are open, and returns which of those given were, counted from 1.
-- $1 to $4: namespaces, ids, stops and statuses; no run twice.
WITH
-- A run never stops before it starts.
open AS MATERIALIZED (
  SELECT place, given.status, run.ns, run.start, run.id, greatest(given.stop, run.start) AS stop
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
    given (name, id, stop, status, place)
  CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace
  CROSS JOIN LATERAL (
    SELECT ns, start, id FROM sm.run
    WHERE run.ns = namespace.no AND run.id = given.id AND run.stop IS NULL
    OFFSET 0
  ) run
),
-- The node of each, as `run::index::node` computes it. `a` has the bits in which the number before the start
-- and the stop differ. From `b` to `g` the highest of them is spread to all bits below it.
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
closed AS (
  UPDATE sm.run SET stop = filed.stop, node = filed.node, status = filed.status
  FROM filed
  WHERE run.ns = filed.ns AND run.start = filed.start AND run.id = filed.id
),
-- How far these runs reach before and after the nodes of their levels, as in raise_levels.sql. The level of a
-- node is its lowest bit that is set.
raised AS (
  INSERT INTO sm.level AS level (ns, bit, mask, before, after)
  SELECT ns, bit, CASE bit WHEN 0 THEN 0 ELSE ~(bit | (bit - 1)) END, max(node - start), max(stop - node)
  FROM filed
  CROSS JOIN LATERAL (SELECT node & -node AS bit OFFSET 0) level
  GROUP BY ns, bit
  ON CONFLICT (ns, bit) DO UPDATE
  SET before = greatest(level.before, excluded.before), after = greatest(level.after, excluded.after)
  WHERE excluded.before > level.before OR excluded.after > level.after
)
SELECT place FROM filed
