-- For a definition, or a tick that promotes or grants without having folded. At REPEATABLE READ the server refuses it (40001)
-- if a tick wrote since the transaction's snapshot, so that no definition decides on an old view.
WITH last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
old AS (DELETE FROM sm.tick USING last WHERE tick.no = last.no RETURNING tick.*)
INSERT INTO sm.tick (no, seen, folder, due) SELECT no + 1, seen, folder, due FROM old
