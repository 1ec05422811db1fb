-- The contract step: what only version 1 uses goes.
DROP TRIGGER pool_about ON sm.pool;
DROP FUNCTION sm.pool_about();
ALTER TABLE sm.pool DROP COLUMN description;
