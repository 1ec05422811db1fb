-- An expand step: the column description is to be called about. Both are there, and follow each other. Every other table gets
-- a column too, which no statement of the version before may stumble over.
--
-- The step needs all tables. Whoever works at version 1 begins with this lock, so it waits for transactions that are open,
-- and meets none that holds one table and waits for the next.
LOCK TABLE sm.version_1 IN ACCESS EXCLUSIVE MODE;
ALTER TABLE sm.pool ADD COLUMN about TEXT NOT NULL DEFAULT '';
UPDATE sm.pool SET about = description;
CREATE FUNCTION sm.pool_about() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.about = '' OR TG_OP = 'UPDATE' AND NEW.about = OLD.about THEN
        NEW.about := NEW.description;
    ELSE
        NEW.description := NEW.about;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER pool_about BEFORE INSERT OR UPDATE ON sm.pool FOR EACH ROW EXECUTE FUNCTION sm.pool_about();
DO $$
DECLARE
    name TEXT;
BEGIN
    FOR name IN SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname <> 'migration'
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'sm.pool'::regclass)
    LOOP
        EXECUTE 'ALTER TABLE ' || name || ' ADD COLUMN later TEXT';
    END LOOP;
END $$;
