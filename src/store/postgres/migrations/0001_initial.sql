-- Instants are microseconds since 1970, UTC. Names sort by their bytes. What becomes of a NUL or a U+001A in a text of the
-- host's: U+001A '0', U+001A '1'.

-- The writers take turns by locking it. ticket: changed by each that changes anything. one: the key of its one row, without which
-- the server would refuse to update it in a schema that is published for logical replication.
CREATE TABLE sm.writer (
    one    BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    ticket BIGINT NOT NULL
);
INSERT INTO sm.writer (ticket) VALUES (0);

-- Numbers that only rise: the last task, lane, sensor change and event; forgotten: the highest last change of a sensor
-- that was deleted.
CREATE TABLE sm.counter (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO sm.counter (name, value) VALUES ('task', 0), ('lane', 0), ('sensor', 0), ('event', 0), ('forgotten', 0);

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
-- map_index: -1 is a task that is not mapped. events: how many of its events are not acknowledged. lease_loss: NULL is fail,
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
    events           BIGINT NOT NULL DEFAULT 0,
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
CREATE INDEX task_ended ON sm.task (ended_at, no) WHERE state >= 6 AND events = 0;

-- Ticks that granted something, and what: the numbers of the tasks, and their epochs.
CREATE TABLE sm.request (
    id     TEXT COLLATE "C" PRIMARY KEY,
    at     BIGINT NOT NULL,
    nos    BIGINT[] NOT NULL,
    epochs BIGINT[] NOT NULL
);
CREATE INDEX request_at ON sm.request (at, id);

-- no: the task. state: 0 waiting, 1 ended. changed: the number of its last change, unique.
CREATE TABLE sm.sensor (
    no            BIGINT PRIMARY KEY,
    epoch         BIGINT NOT NULL,
    state         BIGINT NOT NULL,
    changed       BIGINT NOT NULL,
    fingerprint   BIGINT NOT NULL,
    attempt       BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    interval      BIGINT NOT NULL,
    timeout       BIGINT NOT NULL,
    execution     BIGINT,
    poke          BIGINT,
    max_interval  BIGINT,
    on_landed     BIGINT NOT NULL,
    on_missed     BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    times_out_at  BIGINT NOT NULL,
    kind          TEXT COLLATE "C" NOT NULL,
    context       TEXT COLLATE "C" NOT NULL
);
CREATE INDEX sensor_changed ON sm.sensor (changed);
CREATE INDEX sensor_waiting ON sm.sensor (changed) WHERE state = 0;

-- reason: 0 landed, 1 timed out, 2 failed, 3 cancelled, 4 execution timed out, 5 unreachable. next: a state of a task.
CREATE TABLE sm.event (
    seq        BIGINT PRIMARY KEY,
    no         BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    reason     BIGINT NOT NULL,
    next       BIGINT NOT NULL,
    value      TEXT,
    message    TEXT
);

-- codes, shards: how it splits the shard codes. incarnation: which of the workers that had the name it is.
CREATE TABLE sm.worker (
    name       TEXT COLLATE "C" PRIMARY KEY,
    codes      BIGINT NOT NULL,
    shards     BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    incarnation BIGINT NOT NULL
);
CREATE INDEX worker_expiry ON sm.worker (expires_at, name);

CREATE TABLE sm.shard (
    shard      BIGINT PRIMARY KEY,
    holder     TEXT COLLATE "C",
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX shard_holder ON sm.shard (holder);

CREATE TABLE sm.namespace (
    no   BIGINT PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE
);

-- How far the closed runs ever filed under nodes with this lowest set bit reached before and after their nodes.
-- mask: the bits above it. The node 0 has neither.
CREATE TABLE sm.level (
    ns     BIGINT NOT NULL,
    bit    BIGINT NOT NULL,
    mask   BIGINT NOT NULL,
    before BIGINT NOT NULL,
    after  BIGINT NOT NULL,
    PRIMARY KEY (ns, bit)
);

-- node: where the fork-node index files a closed run; NULL while it is open.
-- status: 3 is suspended. suspended: a JSON array of [from, to or null], or NULL.
CREATE TABLE sm.run (
    ns         BIGINT NOT NULL,
    start      BIGINT NOT NULL,
    stop       BIGINT,
    node       BIGINT,
    status     BIGINT NOT NULL,
    method     BIGINT NOT NULL,
    running    BIGINT,
    heartbeat  BIGINT,
    id         TEXT COLLATE "C" NOT NULL,
    workflow   TEXT COLLATE "C",
    "user"     TEXT,
    suspended  TEXT,
    attributes TEXT,
    PRIMARY KEY (ns, start, id) INCLUDE (stop)
);
CREATE UNIQUE INDEX run_key ON sm.run (ns, id);
CREATE INDEX run_open ON sm.run (ns, start) INCLUDE (id) WHERE stop IS NULL;
CREATE INDEX run_node_start ON sm.run (ns, node, start) INCLUDE (id) WHERE node IS NOT NULL;
CREATE INDEX run_node_stop ON sm.run (ns, node, stop) INCLUDE (start, id) WHERE node IS NOT NULL;
CREATE INDEX run_watched ON sm.run (heartbeat) WHERE heartbeat IS NOT NULL AND stop IS NULL AND status <> 3;
