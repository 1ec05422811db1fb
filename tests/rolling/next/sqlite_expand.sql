-- An expand step: the column description is to be called about. Both are there, and follow each other. Tables that every
-- transaction writes get a column too, which no statement of the version before may stumble over.
ALTER TABLE sm_pool ADD COLUMN about TEXT NOT NULL DEFAULT '';
UPDATE sm_pool SET about = description;
CREATE TRIGGER sm_pool_insert AFTER INSERT ON sm_pool BEGIN
    UPDATE sm_pool SET about = iif(NEW.about = '', NEW.description, NEW.about),
        description = iif(NEW.about = '', NEW.description, NEW.about) WHERE name = NEW.name;
END;
CREATE TRIGGER sm_pool_description AFTER UPDATE OF description ON sm_pool
WHEN NEW.description <> OLD.description AND NEW.about = OLD.about BEGIN
    UPDATE sm_pool SET about = NEW.description WHERE name = NEW.name;
END;
CREATE TRIGGER sm_pool_about AFTER UPDATE OF about ON sm_pool
WHEN NEW.about <> OLD.about AND NEW.description = OLD.description BEGIN
    UPDATE sm_pool SET description = NEW.about WHERE name = NEW.name;
END;
ALTER TABLE sm_task ADD COLUMN later TEXT;
ALTER TABLE sm_lane ADD COLUMN later TEXT;
ALTER TABLE sm_run ADD COLUMN later TEXT;
ALTER TABLE sm_request ADD COLUMN later TEXT;
CREATE INDEX sm_task_has_later ON sm_task (later) WHERE later IS NOT NULL;
