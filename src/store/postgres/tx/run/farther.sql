-- A part of the statements that record how far runs reach: notes `reach`, where it is farther than before.
-- Rows are not updated, so that no one waits for a writer.
farther AS MATERIALIZED (
  SELECT reach.ns, reach.bit, reach.mask, greatest(reach.before, was.before) AS before,
    greatest(reach.after, was.after) AS after
  FROM reach
  CROSS JOIN LATERAL (
    SELECT max(before) AS before, max(after) AS after FROM sm.level
    WHERE level.ns = reach.ns AND level.bit = reach.bit
  ) was
  WHERE reach.before > coalesce(was.before, -1) OR reach.after > coalesce(was.after, -1)
),
noted AS (
  INSERT INTO sm.level (ns, bit, mask, before, after) SELECT ns, bit, mask, before, after FROM farther
),
-- Rows that reach no farther than those now recorded are deleted, so that few have to be read. At a higher
-- isolation level, a transaction that continues after another deleted a row would be refused (40001), so
-- nothing is deleted there.
passed AS MATERIALIZED (
  SELECT level.at
  FROM farther
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.level
    WHERE level.ns = farther.ns AND level.bit = farther.bit
      AND current_setting('transaction_isolation') = 'read committed'
    FOR UPDATE SKIP LOCKED
  ) level
),
gone AS (DELETE FROM sm.level WHERE ctid = ANY (ARRAY(SELECT at FROM passed)))
