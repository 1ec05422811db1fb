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
CREATE INDEX event_of ON sm.event (no);

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
