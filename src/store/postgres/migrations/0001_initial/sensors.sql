-- no: the task. state: 0 waiting, 1 ended. The number of the last change is in sensor_change, once it has one.
CREATE TABLE sm.sensor (
    no            BIGINT PRIMARY KEY,
    epoch         BIGINT NOT NULL,
    state         BIGINT NOT NULL,
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
    context       TEXT COLLATE "C" NOT NULL,
    holder        TEXT COLLATE "C"
);

-- A transaction that changes a sensor, or ends a task of the feed, appends to an inbox. Rows there have no
-- number yet. The holder of the advisory lock of numbers moves committed rows to the tables of numbered changes
-- and events. So numbered rows become visible in the order of their numbers, and no one waits for a writer.

-- The last change of each sensor.
CREATE TABLE sm.sensor_change (
    seq     BIGINT PRIMARY KEY,
    no      BIGINT NOT NULL,
    waiting BOOLEAN NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX sensor_change_of ON sm.sensor_change (no);
CREATE INDEX sensor_change_waiting ON sm.sensor_change (seq) WHERE waiting;
-- kind: 0 registered, 1 ended, 2 deleted.
CREATE TABLE sm.sensor_inbox (
    id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    no   BIGINT NOT NULL,
    kind BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX sensor_inbox_of ON sm.sensor_inbox (no);
CREATE INDEX sensor_inbox_deleted ON sm.sensor_inbox (no) WHERE kind = 2;

-- The feed of ends, with the key of each task, which may be deleted already. state: the state that the task
-- moved to. reason: why its sensor ended, if this event ended one: 0 landed, 1 timed out, 2 failed, 3
-- cancelled, 4 execution timed out, 5 unreachable. The inbox id is drawn by the statement that locked the
-- task's row, so the events of one task stay in order.
CREATE TABLE sm.feed (
    seq       BIGINT PRIMARY KEY,
    no        BIGINT NOT NULL,
    attempt   BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    state     BIGINT NOT NULL,
    reason    BIGINT,
    map_index BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    workflow  TEXT COLLATE "C" NOT NULL,
    run       TEXT COLLATE "C" NOT NULL,
    task      TEXT COLLATE "C" NOT NULL,
    value     TEXT,
    message   TEXT
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE TABLE sm.feed_inbox (
    id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    no        BIGINT NOT NULL,
    attempt   BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    state     BIGINT NOT NULL,
    reason    BIGINT,
    map_index BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    workflow  TEXT COLLATE "C" NOT NULL,
    run       TEXT COLLATE "C" NOT NULL,
    task      TEXT COLLATE "C" NOT NULL,
    value     TEXT,
    message   TEXT
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
-- cursor: the last event that it accepted or lost. reader, until: who may read, and until when.
CREATE TABLE sm.consumer (
    name    TEXT COLLATE "C" PRIMARY KEY,
    cursor  BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    lost    BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    reader  BIGINT NOT NULL,
    until   BIGINT NOT NULL
) WITH (fillfactor = 50);

-- The last numbers of sensor changes and of the feed. forgotten: the highest last change of a deleted sensor.
-- The holder of the advisory lock of numbers inserts a version and deletes the previous one. So the newest is
-- found first, even if an old snapshot keeps many dead versions.
CREATE TABLE sm.numbers (
    version   BIGINT PRIMARY KEY,
    sensor    BIGINT NOT NULL,
    forgotten BIGINT NOT NULL,
    feed      BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
INSERT INTO sm.numbers VALUES (0, 0, 0, 0);

-- codes, shards: how the worker splits the shard codes. incarnation: tells workers with the same name apart.
-- kinds: the kinds that it pokes, a JSON array; null for all. most_shards: the most that it holds; NULL for any
-- number.
CREATE TABLE sm.worker (
    name       TEXT COLLATE "C" PRIMARY KEY,
    codes      BIGINT NOT NULL,
    shards     BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    incarnation BIGINT NOT NULL,
    kinds      TEXT NOT NULL,
    most_shards BIGINT
);
CREATE INDEX worker_expiry ON sm.worker (expires_at, name);

-- kind: empty for the lease of the shard; otherwise the lease covers only that kind of the shard.
-- load: what its pokes cost, in microseconds per second.
CREATE TABLE sm.shard (
    shard      BIGINT NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    holder     TEXT COLLATE "C",
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    load       BIGINT NOT NULL,
    PRIMARY KEY (shard, kind)
);
CREATE INDEX shard_holder ON sm.shard (holder);
-- The last changes of holder: which worker took which shard under which epoch. left_at: since when the shard
-- had no holder.
CREATE TABLE sm.shard_take (
    shard   BIGINT NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    epoch   BIGINT NOT NULL,
    holder  TEXT COLLATE "C" NOT NULL,
    at      BIGINT NOT NULL,
    codes   BIGINT NOT NULL,
    shards  BIGINT NOT NULL,
    left_at BIGINT NOT NULL,
    PRIMARY KEY (shard, kind, epoch)
);
CREATE INDEX shard_take_of_kind ON sm.shard_take (at) WHERE kind <> '';
-- Outages of targets that lasted until a poker renewed its shards. until: NULL while the outage lasts.
CREATE TABLE sm.outage (
    fingerprint BIGINT NOT NULL,
    since       BIGINT NOT NULL,
    until       BIGINT,
    PRIMARY KEY (fingerprint, since)
);
CREATE INDEX outage_open ON sm.outage (fingerprint, since) WHERE until IS NULL;
CREATE INDEX outage_until ON sm.outage (until) WHERE until IS NOT NULL;
-- The pokes that each worker made and saved in each hour. hour: when it began. incarnation: as in worker.
-- duration: how long the pokes took, in microseconds.
CREATE TABLE sm.poke_count (
    hour        BIGINT NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    worker      TEXT COLLATE "C" NOT NULL,
    incarnation BIGINT NOT NULL,
    poked       BIGINT NOT NULL,
    saved       BIGINT NOT NULL,
    duration    BIGINT NOT NULL,
    PRIMARY KEY (hour, kind, worker, incarnation)
);
