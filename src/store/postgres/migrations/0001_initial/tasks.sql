-- Instants are microseconds since 1970, UTC. Names sort by their bytes. What becomes of a NUL or a U+001A in a text of the
-- host's: U+001A '0', U+001A '1'.

-- The writers take turns by locking it. ticket: changed by each that changes anything. one: the key of its one row, without which
-- the server would refuse to update it in a schema that is published for logical replication.
CREATE TABLE sm.writer (
    one    BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    ticket BIGINT NOT NULL
);
INSERT INTO sm.writer (ticket) VALUES (0);

-- Numbers that only rise: the last task and lane.
CREATE TABLE sm.counter (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO sm.counter (name, value) VALUES ('task', 0), ('lane', 0);

-- slots: NULL is unlimited. keeps_slots: 0 give back, 1 keep.
CREATE TABLE sm.pool (
    name        TEXT COLLATE "C" PRIMARY KEY,
    slots       BIGINT,
    used        BIGINT NOT NULL DEFAULT 0,
    keeps_slots BIGINT NOT NULL DEFAULT 0,
    description TEXT NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
INSERT INTO sm.pool (name, slots) VALUES ('default_pool', 128);

-- Limits. max: NULL where tasks carry the key and no limit is defined for it. lanes: how many name it.
CREATE TABLE sm.task_limit (
    key   TEXT COLLATE "C" PRIMARY KEY,
    max   BIGINT,
    used  BIGINT NOT NULL DEFAULT 0,
    lanes BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX task_limit_defined ON sm.task_limit (key) WHERE max IS NOT NULL;

-- limits: a JSON array of the keys, sorted. digest: of pool, slots and limits, which are too long for an index.
-- tasks: how many are in it; ready: how many of them are.
CREATE TABLE sm.lane (
    no     BIGINT PRIMARY KEY,
    digest BIGINT NOT NULL,
    slots  BIGINT NOT NULL,
    tasks  BIGINT NOT NULL DEFAULT 0,
    ready  BIGINT NOT NULL DEFAULT 0,
    pool   TEXT COLLATE "C" NOT NULL,
    limits TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX lane_digest ON sm.lane (digest);
CREATE INDEX lane_ready ON sm.lane (no) WHERE ready > 0;

-- state: 0 scheduled and ready, 1 queued, 2 running, 3 up_for_retry, 4 sensing, 5 scheduled and not yet due,
-- 6 success, 7 failed, 8 skipped.
-- map_index: -1 is a task that is not mapped. lease_loss: NULL is fail,
-- else how many are requeued. retry: NULL is never. finished: the state to which the holder's finish moved it when its last
-- lease ended; NULL if something else ended that lease or moved the task since.
CREATE TABLE sm.task (
    no               BIGINT PRIMARY KEY,
    state            BIGINT NOT NULL DEFAULT 0,
    due              BIGINT,
    epoch            BIGINT NOT NULL DEFAULT 0,
    lane             BIGINT NOT NULL,
    slots            BIGINT NOT NULL,
    held_slots       BIGINT NOT NULL DEFAULT 0,
    expires_at       BIGINT,
    rank             BIGINT NOT NULL,
    logical_date     BIGINT NOT NULL,
    map_index        BIGINT NOT NULL,
    priority         BIGINT NOT NULL,
    attempt          BIGINT NOT NULL DEFAULT 0,
    forgiven         BIGINT NOT NULL DEFAULT 0,
    lost             BIGINT NOT NULL DEFAULT 0,
    lease_loss       BIGINT,
    attempt_runs     BIGINT NOT NULL DEFAULT 0,
    enqueued_at      BIGINT NOT NULL,
    ready_at         BIGINT NOT NULL,
    queued_at        BIGINT,
    first_started_at BIGINT,
    started_at       BIGINT,
    ended_at         BIGINT,
    finished         BIGINT,
    namespace        TEXT COLLATE "C" NOT NULL,
    workflow         TEXT COLLATE "C" NOT NULL,
    run              TEXT COLLATE "C" NOT NULL,
    task             TEXT COLLATE "C" NOT NULL,
    holder           TEXT COLLATE "C",
    retry            TEXT,
    message          TEXT,
    value            TEXT,
    payload          TEXT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX task_key ON sm.task (namespace, workflow, run, task, map_index);
CREATE INDEX task_ready ON sm.task (lane, rank, logical_date, map_index, no) INCLUDE (ready_at) WHERE state = 0;
CREATE INDEX task_due ON sm.task (due, rank, logical_date, map_index, no) WHERE due IS NOT NULL;
CREATE INDEX task_lease ON sm.task (expires_at, no) WHERE expires_at IS NOT NULL;
CREATE INDEX task_sensing ON sm.task (lane) WHERE state = 4;
CREATE INDEX task_ended ON sm.task (ended_at, no) WHERE state >= 6;

-- Ticks that granted something, and what: the numbers of the tasks, and their epochs.
CREATE TABLE sm.request (
    id     TEXT COLLATE "C" PRIMARY KEY,
    at     BIGINT NOT NULL,
    nos    BIGINT[] NOT NULL,
    epochs BIGINT[] NOT NULL
);
CREATE INDEX request_at ON sm.request (at, id);
