-- The contract step: what only version 1 uses goes.
DROP TRIGGER sm_pool_insert;
DROP TRIGGER sm_pool_description;
DROP TRIGGER sm_pool_about;
ALTER TABLE sm_pool DROP COLUMN description;
