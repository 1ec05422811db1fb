-- Numbers that only rise. task, lane, sensor, feed: the last task, lane, sensor change and feed event. grants:
-- to tasks of shares. forgotten: the highest last change of a deleted sensor. filing: 1 while first tasks are
-- filed.
CREATE TABLE sm_counter (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sm_counter (name, value) VALUES ('task', 0), ('lane', 0), ('sensor', 0), ('feed', 0), ('forgotten', 0),
    ('grants', 0), ('filing', 0);

-- slots: NULL is unlimited. keeps_slots: 0 give back, 1 keep.
CREATE TABLE sm_pool (
    name        TEXT PRIMARY KEY,
    slots       INTEGER,
    used        INTEGER NOT NULL DEFAULT 0,
    keeps_slots INTEGER NOT NULL DEFAULT 0,
    description TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
INSERT INTO sm_pool (name, slots) VALUES ('default_pool', 128);

-- Limits. max: NULL if tasks carry the key and no limit is defined for it. lanes: how many lanes with tasks
-- that have not ended carry it.
CREATE TABLE sm_task_limit (
    key     TEXT PRIMARY KEY,
    defined INTEGER NOT NULL DEFAULT 0,
    max     INTEGER,
    starts  INTEGER,
    period  INTEGER,
    burst   INTEGER,
    weight  INTEGER,
    used    INTEGER NOT NULL DEFAULT 0,
    lanes   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_task_limit_defined ON sm_task_limit (key) WHERE defined = 1;

CREATE TABLE sm_family (
    prefix TEXT PRIMARY KEY,
    max    INTEGER,
    starts INTEGER,
    period INTEGER,
    burst  INTEGER,
    weight INTEGER
) STRICT, WITHOUT ROWID;

-- The slots of a pool that a share's tasks hold, the number of its lanes whose own pool it is and whose tasks
-- have not all ended, and the values that decide the share's turn: see docs/admission.md. The next tick deletes
-- a share with neither slots nor lanes. changed: 1 if these values, or the share's weight, may have changed
-- since a tick computed its turns in sm_lane_contender.
CREATE TABLE sm_share_use (
    pool   TEXT NOT NULL,
    share  TEXT NOT NULL,
    held   INTEGER NOT NULL DEFAULT 0,
    lanes  INTEGER NOT NULL DEFAULT 0,
    stamp  INTEGER NOT NULL,
    dither INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (pool, share)
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_share_use_unused ON sm_share_use (pool) WHERE held = 0 AND lanes = 0;
CREATE INDEX sm_share_use_changed ON sm_share_use (pool) WHERE changed = 1;
CREATE INDEX sm_share_use_share ON sm_share_use (share);

-- The debt of each key to its rate: see docs/admission.md. starts, period: the rate when the row was written.
-- full_at: when the debt is paid.
CREATE TABLE sm_rate (
    key     TEXT PRIMARY KEY,
    owed    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    starts  INTEGER NOT NULL,
    period  INTEGER NOT NULL,
    full_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_rate_at ON sm_rate (at);
CREATE INDEX sm_rate_full ON sm_rate (full_at);

-- kind: 0 queue, 1 pool, 2 limit key, 3 family.
CREATE TABLE sm_pause (
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Caps on waiting tasks. kind: 0 queue, 2 limit key, 3 family.
CREATE TABLE sm_cap (
    kind   INTEGER NOT NULL,
    name   TEXT NOT NULL,
    most   INTEGER NOT NULL,
    strict INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- limits: a sorted JSON array of keys; of a key and a count if a task counts other than 1 against it; of the
-- share with its count and the priority; and of the other pools, as objects.
-- tasks: its tasks that have not ended. ready: those in state 0. ended: the ended tasks with these needs. Their
-- needs are kept here, so the row stays until these tasks are deleted.
-- grp to head: set only while first tasks are filed, for a lane with ready tasks. grp is its group. rank to
-- head is the place of its first ready task in the order of admission; head is that task's number.
-- counted: always NULL. Writing it fires a trigger that looks for the first task.
CREATE TABLE sm_lane (
    no     INTEGER PRIMARY KEY,
    pool   TEXT NOT NULL,
    slots  INTEGER NOT NULL,
    limits TEXT NOT NULL,
    queue  TEXT NOT NULL DEFAULT 'default',
    tasks  INTEGER NOT NULL DEFAULT 0,
    ready  INTEGER NOT NULL DEFAULT 0,
    ended  INTEGER NOT NULL DEFAULT 0,
    grp          INTEGER,
    rank         INTEGER,
    logical_date INTEGER,
    map_index    INTEGER,
    head         INTEGER,
    counted      INTEGER
) STRICT;
CREATE UNIQUE INDEX sm_lane_key ON sm_lane (pool, slots, limits, queue);
CREATE INDEX sm_lane_ready ON sm_lane (queue, no) WHERE ready > 0;
-- Not by ready: each call that counts would write this index.
CREATE INDEX sm_lane_number ON sm_lane (no) WHERE grp IS NOT NULL;
CREATE INDEX sm_lane_head ON sm_lane (grp, rank, logical_date, map_index, head) WHERE head IS NOT NULL;

-- A class: all lanes of one queue that need the same slots of the same pools. also: the other pools, as the
-- objects of the lanes' limits, or empty.
-- closed: while the lanes are refused, 1 by a pool with too few open slots, 2 by a pool that is paused, unknown
-- or too small, 3 by a pause of the queue.
-- refuser: the name of the pool or queue that refuses them, or did so last. needs: how many slots of the pool a
-- task needs.
-- rank to head: the place of the first task in groups without a share that do not sleep. shared: 1 if a
-- contender has such a place.
CREATE TABLE sm_lane_class (
    no     INTEGER PRIMARY KEY,
    queue  TEXT NOT NULL,
    pool   TEXT NOT NULL,
    slots  INTEGER NOT NULL,
    also   TEXT NOT NULL,
    shared INTEGER NOT NULL DEFAULT 0,
    closed INTEGER NOT NULL DEFAULT 0,
    refuser TEXT,
    needs  INTEGER,
    rank         INTEGER,
    logical_date INTEGER,
    map_index    INTEGER,
    head         INTEGER
) STRICT;
CREATE UNIQUE INDEX sm_lane_class_key ON sm_lane_class (queue, pool, slots, also);
CREATE INDEX sm_lane_class_head ON sm_lane_class (rank, logical_date, map_index, head) WHERE closed = 0 AND head IS NOT NULL;
CREATE INDEX sm_lane_class_queue ON sm_lane_class (queue, rank, logical_date, map_index, head)
    WHERE closed = 0 AND head IS NOT NULL;
CREATE INDEX sm_lane_class_closed ON sm_lane_class (refuser, closed, needs) WHERE closed > 0;
CREATE INDEX sm_lane_class_shared ON sm_lane_class (queue, no) WHERE closed = 0 AND shared = 1;

-- A contender: the lanes of a class that are of one share and level. holds to stamp: the turn of the share when
-- a tick last computed it. rank to head: the place of the first task in its groups that do not sleep.
CREATE TABLE sm_lane_contender (
    no     INTEGER PRIMARY KEY,
    class  INTEGER NOT NULL,
    pool   TEXT NOT NULL,
    share  TEXT NOT NULL,
    level  INTEGER NOT NULL,
    holds  INTEGER NOT NULL DEFAULT 0,
    parts  INTEGER NOT NULL DEFAULT 0,
    stamp  INTEGER NOT NULL DEFAULT 0,
    rank         INTEGER,
    logical_date INTEGER,
    map_index    INTEGER,
    head         INTEGER
) STRICT;
CREATE UNIQUE INDEX sm_lane_contender_key ON sm_lane_contender (class, share, level);
CREATE INDEX sm_lane_contender_pair ON sm_lane_contender (pool, share);
CREATE INDEX sm_lane_contender_turn
    ON sm_lane_contender (class, level, holds, parts, stamp, share, rank, logical_date, map_index, head) WHERE head IS NOT NULL;

-- A group: the lanes of a class that were last refused by the same cause, a JSON object. cause is empty for
-- lanes that were not refused. parent: the class, or, for lanes of a share, the negated number of their
-- contender.
-- asleep: 1 while the cause refuses them. paused: 2 or 3, the kind of the pause whose end they wait for; 0 if
-- they wait for counts or tokens. key: the limit key or family concerned. next: when the refusal expires.
CREATE TABLE sm_lane_group (
    no     INTEGER PRIMARY KEY,
    class  INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    cause  TEXT NOT NULL,
    asleep INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0,
    key    TEXT,
    next   INTEGER,
    rank         INTEGER,
    logical_date INTEGER,
    map_index    INTEGER,
    head         INTEGER
) STRICT;
CREATE UNIQUE INDEX sm_lane_group_key ON sm_lane_group (class, parent, cause);
CREATE INDEX sm_lane_group_head ON sm_lane_group (parent, rank, logical_date, map_index, head)
    WHERE asleep = 0 AND head IS NOT NULL;
CREATE INDEX sm_lane_group_asleep ON sm_lane_group (key) WHERE asleep = 1;
CREATE INDEX sm_lane_group_next ON sm_lane_group (next) WHERE next IS NOT NULL;
CREATE INDEX sm_lane_group_next_of ON sm_lane_group (queue, next) WHERE next IS NOT NULL;

-- The queues that each holder's ticks serve. queues: a sorted JSON array, or null for all. until: when the row
-- stops counting.
CREATE TABLE sm_serving (
    holder  TEXT NOT NULL,
    queues  TEXT NOT NULL,
    announced_at INTEGER NOT NULL,
    lease   INTEGER NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (holder, queues)
) STRICT, WITHOUT ROWID;

-- state: 0 scheduled and ready, 1 queued, 2 running, 3 up_for_retry, 4 sensing, 5 scheduled and not yet due,
-- or, if due is NULL, ready with slots that it kept, 6 success, 7 failed, 8 skipped, 9 cancelled.
-- cancel_at: the deadline of a lease whose task was cancelled. map_index: -1 is a task that is not mapped.
-- attempt_runs, bits: 1 attempts are recorded as runs, 2 the feed reports ends, 4 the feed reports other events
-- of its sensor, 8 all attempts are kept, 16 no attempts are kept.
-- lease_loss: NULL is fail, otherwise how many losses are requeued. retry: NULL is never.
-- finished: the state to which the holder's finish moved the task when its last lease ended. NULL if something
-- else ended that lease or has moved the task since. note, noted_at: what the holder of its latest lease said.
-- Numbers come before texts, so that finding a row's state reads no long text.
CREATE TABLE sm_task (
    no               INTEGER PRIMARY KEY,
    state            INTEGER NOT NULL DEFAULT 0,
    due              INTEGER,
    epoch            INTEGER NOT NULL DEFAULT 0,
    lane             INTEGER NOT NULL,
    slots            INTEGER NOT NULL,
    held_slots       INTEGER NOT NULL DEFAULT 0,
    expires_at       INTEGER,
    rank             INTEGER NOT NULL,
    logical_date     INTEGER NOT NULL,
    map_index        INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    attempt          INTEGER NOT NULL DEFAULT 0,
    forgiven         INTEGER NOT NULL DEFAULT 0,
    lost             INTEGER NOT NULL DEFAULT 0,
    lease_loss       INTEGER,
    attempt_runs     INTEGER NOT NULL DEFAULT 0,
    enqueued_at      INTEGER NOT NULL,
    ready_at         INTEGER NOT NULL,
    queued_at        INTEGER,
    first_started_at INTEGER,
    started_at       INTEGER,
    ended_at         INTEGER,
    finished         INTEGER,
    cancel_at        INTEGER,
    noted_at         INTEGER,
    namespace        TEXT NOT NULL,
    workflow         TEXT NOT NULL,
    run              TEXT NOT NULL,
    task             TEXT NOT NULL,
    holder           TEXT,
    retry            TEXT,
    message          TEXT,
    value            TEXT,
    note             TEXT,
    payload          TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sm_task_key ON sm_task (namespace, workflow, run, task, map_index);
CREATE INDEX sm_task_ready ON sm_task (lane, rank, logical_date, map_index) WHERE state = 0;
CREATE INDEX sm_task_keeping ON sm_task (lane, rank, logical_date, map_index) WHERE state = 5 AND due IS NULL;
CREATE INDEX sm_task_due ON sm_task (due, rank, logical_date, map_index) WHERE due IS NOT NULL;
CREATE INDEX sm_task_lease ON sm_task (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX sm_task_sensing ON sm_task (lane) WHERE state = 4;
CREATE INDEX sm_task_ended ON sm_task (state, ended_at) WHERE state >= 6;

-- For lists: see docs/listing.md. A task that is enqueued ready and succeeds is only in the first of these
-- indexes.
CREATE INDEX sm_task_holder ON sm_task (holder) WHERE holder IS NOT NULL;
CREATE INDEX sm_task_retry ON sm_task (lane) WHERE state = 3;
CREATE INDEX sm_task_later ON sm_task (lane) WHERE state = 5;

-- Kept attempts of a task's latest grants. state: the state that followed. by_holder: 1 if its holder ended it.
CREATE TABLE sm_attempt (
    no         INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    queued_at  INTEGER,
    started_at INTEGER,
    ended_at   INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    by_holder  INTEGER NOT NULL,
    holder     TEXT,
    queue      TEXT NOT NULL,
    message    TEXT,
    PRIMARY KEY (no, epoch)
) STRICT, WITHOUT ROWID;

-- Ticks that granted tasks. grants: a JSON array of [no, epoch].
CREATE TABLE sm_request (
    no     INTEGER PRIMARY KEY,
    id     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    grants TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sm_request_id ON sm_request (id);
CREATE INDEX sm_request_at ON sm_request (at, id);

-- no: the task. state: 0 waiting, 1 ended. changed: the number of its last change, unique.
CREATE TABLE sm_sensor (
    no            INTEGER PRIMARY KEY,
    epoch         INTEGER NOT NULL,
    state         INTEGER NOT NULL,
    changed       INTEGER NOT NULL,
    fingerprint   INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    interval      INTEGER NOT NULL,
    timeout       INTEGER NOT NULL,
    execution     INTEGER,
    poke          INTEGER,
    max_interval  INTEGER,
    on_landed     INTEGER NOT NULL,
    on_missed     INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    times_out_at  INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    context       TEXT NOT NULL,
    holder        TEXT
) STRICT;
CREATE INDEX sm_sensor_changed ON sm_sensor (state, changed);

-- The feed of ends, with the key of each task, which may be deleted already. state: the state that the task
-- moved to. reason: why its sensor ended, if this event ended one: 0 landed, 1 timed out, 2 failed, 3
-- cancelled, 4 execution timed out, 5 unreachable.
CREATE TABLE sm_feed (
    seq       INTEGER PRIMARY KEY,
    no        INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    state     INTEGER NOT NULL,
    reason    INTEGER,
    map_index INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    workflow  TEXT NOT NULL,
    run       TEXT NOT NULL,
    task      TEXT NOT NULL,
    value     TEXT,
    message   TEXT
) STRICT;
-- cursor: the last event that it accepted or lost. reader, until: who may read, and until when.
CREATE TABLE sm_consumer (
    name    TEXT PRIMARY KEY,
    cursor  INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    lost    INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    reader  INTEGER NOT NULL,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- codes, shards: how the worker splits the shard codes. incarnation: tells workers with the same name apart.
-- kinds: the kinds that it pokes, a JSON array; null for all. most_shards: the most that it holds; NULL for any
-- number.
CREATE TABLE sm_worker (
    name       TEXT PRIMARY KEY,
    codes      INTEGER NOT NULL,
    shards     INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    kinds      TEXT NOT NULL,
    most_shards INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_worker_expiry ON sm_worker (expires_at, name);

-- kind: empty for the lease of the shard; otherwise the lease covers only that kind of the shard. load: what
-- its pokes cost, in microseconds per second.
CREATE TABLE sm_shard (
    shard      INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    holder     TEXT,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    load       INTEGER NOT NULL,
    PRIMARY KEY (shard, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_shard_holder ON sm_shard (holder);
-- The last changes of holder: which worker took which shard under which epoch. left_at: since when the shard
-- had no holder.
CREATE TABLE sm_shard_take (
    shard   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    epoch   INTEGER NOT NULL,
    holder  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    codes   INTEGER NOT NULL,
    shards  INTEGER NOT NULL,
    left_at INTEGER NOT NULL,
    PRIMARY KEY (shard, kind, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_shard_take_of_kind ON sm_shard_take (at) WHERE kind <> '';
-- Outages of targets that lasted until a poker renewed its shards. until: NULL while the outage lasts.
CREATE TABLE sm_outage (
    fingerprint INTEGER NOT NULL,
    since       INTEGER NOT NULL,
    until       INTEGER,
    PRIMARY KEY (fingerprint, since)
) STRICT, WITHOUT ROWID;
CREATE INDEX sm_outage_open ON sm_outage (fingerprint, since) WHERE until IS NULL;
CREATE INDEX sm_outage_until ON sm_outage (until) WHERE until IS NOT NULL;
-- The pokes that each worker made and saved in each hour. hour: when it began. incarnation: as in sm_worker.
-- duration: how long the pokes took, in microseconds.
CREATE TABLE sm_poke_count (
    hour        INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    worker      TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    poked       INTEGER NOT NULL,
    saved       INTEGER NOT NULL,
    duration    INTEGER NOT NULL,
    PRIMARY KEY (hour, kind, worker, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE sm_namespace (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sm_namespace_name ON sm_namespace (name);

-- How far closed runs that were ever filed under nodes with this lowest set bit reached before and after their
-- nodes. mask: the bits above it. Node 0 has neither.
CREATE TABLE sm_level (
    ns     INTEGER NOT NULL,
    bit    INTEGER NOT NULL,
    mask   INTEGER NOT NULL,
    before INTEGER NOT NULL,
    after  INTEGER NOT NULL,
    PRIMARY KEY (ns, bit)
) STRICT, WITHOUT ROWID;

-- The runs of a namespace are stored together, in the order in which queries return them.
-- node: where the fork-node index files a closed run; NULL while it is open.
-- status: 3 is suspended. suspended: a JSON array of [from, to or null], or NULL.
-- nodes: a JSON array of [since, nodes], or NULL for one node.
CREATE TABLE sm_run (
    ns         INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    id         TEXT NOT NULL,
    stop       INTEGER,
    node       INTEGER,
    status     INTEGER NOT NULL,
    method     INTEGER NOT NULL,
    running    INTEGER,
    heartbeat  INTEGER,
    workflow   TEXT,
    user       TEXT,
    suspended  TEXT,
    nodes      TEXT,
    attributes TEXT,
    PRIMARY KEY (ns, start, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX sm_run_key ON sm_run (ns, id);
CREATE INDEX sm_run_open ON sm_run (ns, start, stop) WHERE stop IS NULL;
CREATE INDEX sm_run_node_start ON sm_run (ns, node, start) WHERE node IS NOT NULL;
CREATE INDEX sm_run_node_stop ON sm_run (ns, node, stop) WHERE node IS NOT NULL;
CREATE INDEX sm_run_watched ON sm_run (heartbeat)
    WHERE heartbeat IS NOT NULL AND stop IS NULL AND status <> 3;

-- These triggers keep the first tasks of lanes, groups and classes exact after each statement that counts.
-- First tasks are filed only if many lanes have ready tasks. Otherwise no lane has a group, and the triggers do
-- nothing. A change of a lane's ready tasks writes counted afterwards. The crate does so only while first tasks
-- are filed, because firing triggers costs time even if they do nothing.
CREATE TRIGGER sm_lane_filed AFTER UPDATE OF counted ON sm_lane
WHEN NEW.grp IS NULL AND NEW.ready > 0 AND (SELECT value FROM sm_counter WHERE name = 'filing') = 1
BEGIN
    INSERT INTO sm_lane_class (queue, pool, slots, also)
        SELECT NEW.queue, NEW.pool, NEW.slots, need.also
        FROM (SELECT ifnull(group_concat(value), '') AS also FROM json_each(NEW.limits) WHERE type = 'object') AS need
        WHERE NOT EXISTS (
            SELECT 1 FROM sm_lane_class AS class WHERE class.queue = NEW.queue AND class.pool = NEW.pool
                AND class.slots = NEW.slots AND class.also = need.also
        );
    INSERT INTO sm_lane_contender (class, pool, share, level)
        SELECT class.no, NEW.pool, sm_shared.share, level FROM sm_shared, sm_lane_class AS class
        WHERE lane = NEW.no AND class.queue = NEW.queue AND class.pool = NEW.pool AND class.slots = NEW.slots
            AND also = (SELECT ifnull(group_concat(value), '') FROM json_each(NEW.limits) WHERE type = 'object')
            AND NOT EXISTS (
                SELECT 1 FROM sm_lane_contender AS other
                WHERE other.class = class.no AND other.share = sm_shared.share AND other.level = sm_shared.level
            );
    INSERT INTO sm_lane_group (class, parent, queue, cause)
        SELECT class.no, ifnull(-contender.no, class.no), class.queue, ''
        FROM sm_lane_class AS class LEFT JOIN sm_shared ON lane = NEW.no
            LEFT JOIN sm_lane_contender AS contender
            ON contender.class = class.no AND contender.share = sm_shared.share AND contender.level = sm_shared.level
        WHERE class.queue = NEW.queue AND class.pool = NEW.pool AND class.slots = NEW.slots
            AND also = (SELECT ifnull(group_concat(value), '') FROM json_each(NEW.limits) WHERE type = 'object')
            AND NOT EXISTS (
                SELECT 1 FROM sm_lane_group AS other
                WHERE other.class = class.no AND other.parent = ifnull(-contender.no, class.no) AND other.cause = ''
            );
    UPDATE sm_lane SET grp = (
            SELECT sm_lane_group.no
            FROM sm_lane_class AS class LEFT JOIN sm_shared ON lane = NEW.no
                LEFT JOIN sm_lane_contender AS contender
                ON contender.class = class.no AND contender.share = sm_shared.share AND contender.level = sm_shared.level
                JOIN sm_lane_group
                ON sm_lane_group.class = class.no AND parent = ifnull(-contender.no, class.no) AND cause = ''
            WHERE class.queue = NEW.queue AND class.pool = NEW.pool AND class.slots = NEW.slots
                AND also = (SELECT ifnull(group_concat(value), '') FROM json_each(NEW.limits) WHERE type = 'object')
        ), (rank, logical_date, map_index, head) = (
            SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = NEW.no AND state = 0
            ORDER BY rank, logical_date, map_index, no LIMIT 1
        )
        WHERE no = NEW.no AND grp IS NULL;
END;
CREATE TRIGGER sm_lane_counted AFTER UPDATE OF counted ON sm_lane WHEN NEW.grp IS NOT NULL
BEGIN
    UPDATE sm_lane SET (rank, logical_date, map_index, head) = (
            SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = NEW.no AND state = 0
            ORDER BY rank, logical_date, map_index, no LIMIT 1
        )
        WHERE no = NEW.no;
END;
CREATE TRIGGER sm_lane_emptied AFTER UPDATE OF head ON sm_lane WHEN NEW.head IS NULL AND OLD.head IS NOT NULL
BEGIN
    UPDATE sm_lane SET grp = NULL WHERE no = NEW.no;
END;
CREATE TRIGGER sm_lane_headed AFTER UPDATE OF head ON sm_lane
WHEN (NEW.rank, NEW.logical_date, NEW.map_index, NEW.head) IS NOT (OLD.rank, OLD.logical_date, OLD.map_index, OLD.head)
BEGIN
    UPDATE sm_lane_group SET (rank, logical_date, map_index, head) = (
            SELECT rank, logical_date, map_index, head FROM sm_lane WHERE grp = NEW.grp AND head IS NOT NULL
            ORDER BY rank, logical_date, map_index, head LIMIT 1
        )
        WHERE no = NEW.grp AND (head IS NULL OR head = OLD.head
            OR (NEW.rank, NEW.logical_date, NEW.map_index, NEW.head) < (rank, logical_date, map_index, head));
END;
CREATE TRIGGER sm_lane_moved AFTER UPDATE OF grp ON sm_lane WHEN NEW.grp <> OLD.grp
BEGIN
    UPDATE sm_lane_group SET (rank, logical_date, map_index, head) = (
            SELECT rank, logical_date, map_index, head FROM sm_lane WHERE grp = sm_lane_group.no AND head IS NOT NULL
            ORDER BY rank, logical_date, map_index, head LIMIT 1
        )
        WHERE no IN (NEW.grp, OLD.grp);
END;
CREATE TRIGGER sm_lane_group_changed AFTER UPDATE OF asleep, head ON sm_lane_group
WHEN NEW.asleep <> OLD.asleep
    OR (NEW.rank, NEW.logical_date, NEW.map_index, NEW.head) IS NOT (OLD.rank, OLD.logical_date, OLD.map_index, OLD.head)
BEGIN
    UPDATE sm_lane_class SET (rank, logical_date, map_index, head) = (
            SELECT rank, logical_date, map_index, head FROM sm_lane_group
            WHERE parent = NEW.parent AND asleep = 0 AND head IS NOT NULL
            ORDER BY rank, logical_date, map_index, head LIMIT 1
        )
        WHERE no = NEW.parent AND (head IS NULL OR head = OLD.head
            OR (NEW.rank, NEW.logical_date, NEW.map_index, NEW.head) < (rank, logical_date, map_index, head));
    UPDATE sm_lane_contender SET (rank, logical_date, map_index, head) = (
            SELECT rank, logical_date, map_index, head FROM sm_lane_group
            WHERE parent = NEW.parent AND asleep = 0 AND head IS NOT NULL
            ORDER BY rank, logical_date, map_index, head LIMIT 1
        )
        WHERE no = -NEW.parent AND (head IS NULL OR head = OLD.head
            OR (NEW.rank, NEW.logical_date, NEW.map_index, NEW.head) < (rank, logical_date, map_index, head));
END;
CREATE TRIGGER sm_lane_group_emptied AFTER UPDATE OF head ON sm_lane_group WHEN NEW.head IS NULL
BEGIN
    DELETE FROM sm_lane_group WHERE no = NEW.no;
    DELETE FROM sm_lane_contender WHERE no = -NEW.parent
        AND NOT EXISTS (SELECT 1 FROM sm_lane_group WHERE class = NEW.class AND parent = NEW.parent);
    DELETE FROM sm_lane_class WHERE no = NEW.class AND NOT EXISTS (SELECT 1 FROM sm_lane_group WHERE class = NEW.class);
END;

CREATE TRIGGER sm_lane_contender_made AFTER INSERT ON sm_lane_contender
BEGIN
    UPDATE sm_share_use SET changed = 1 WHERE pool = NEW.pool AND share = NEW.share;
END;
CREATE TRIGGER sm_lane_contender_headed AFTER UPDATE OF head ON sm_lane_contender WHEN (NEW.head IS NULL) <> (OLD.head IS NULL)
BEGIN
    UPDATE sm_lane_class SET shared = NOT shared WHERE no = NEW.class
        AND shared <> EXISTS (SELECT 1 FROM sm_lane_contender WHERE class = NEW.class AND head IS NOT NULL);
END;
CREATE TRIGGER sm_lane_contender_gone AFTER DELETE ON sm_lane_contender WHEN OLD.head IS NOT NULL
BEGIN
    UPDATE sm_lane_class SET shared = NOT shared WHERE no = OLD.class
        AND shared <> EXISTS (SELECT 1 FROM sm_lane_contender WHERE class = OLD.class AND head IS NOT NULL);
END;

-- Marks are removed as soon as what they name may no longer refuse. A pause ends no refusal. A definition may
-- also change weights.
CREATE TRIGGER sm_pool_freed AFTER UPDATE OF used, slots ON sm_pool WHEN NEW.used < OLD.used OR NEW.slots IS NOT OLD.slots
BEGIN
    UPDATE sm_lane_class SET closed = 0
        WHERE closed > 0 AND closed = 1 AND refuser = NEW.name AND needs <= ifnull(NEW.slots - NEW.used, needs);
END;
CREATE TRIGGER sm_pool_resized AFTER UPDATE OF slots ON sm_pool WHEN NEW.slots IS NOT OLD.slots
BEGIN
    UPDATE sm_lane_class SET closed = 0 WHERE closed > 0 AND closed = 2 AND refuser = NEW.name;
END;
CREATE TRIGGER sm_pool_defined AFTER INSERT ON sm_pool
BEGIN
    UPDATE sm_lane_class SET closed = 0 WHERE closed > 0 AND closed < 3 AND refuser = NEW.name;
END;
CREATE TRIGGER sm_pool_gone AFTER DELETE ON sm_pool
BEGIN
    UPDATE sm_lane_class SET closed = 0 WHERE closed > 0 AND closed < 3 AND refuser = OLD.name;
END;
CREATE TRIGGER sm_task_limit_freed AFTER UPDATE OF used ON sm_task_limit WHEN NEW.used < OLD.used
BEGIN
    UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE asleep = 1 AND key = NEW.key AND paused = 0;
END;
CREATE TRIGGER sm_task_limit_defined AFTER INSERT ON sm_task_limit WHEN NEW.defined = 1
BEGIN
    UPDATE sm_share_use SET changed = 1 WHERE share = NEW.key;
    UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE asleep = 1 AND key = NEW.key AND paused = 0;
END;
CREATE TRIGGER sm_task_limit_changed AFTER UPDATE OF defined, max, starts, period, burst, weight ON sm_task_limit
BEGIN
    UPDATE sm_share_use SET changed = 1 WHERE share = NEW.key;
    UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE asleep = 1 AND key = NEW.key AND paused = 0;
END;
-- A key has at most 512 bytes, which is 128 characters of four bytes. So no key of a family sorts after its
-- prefix followed by 128 of the highest character.
CREATE TRIGGER sm_family_defined AFTER INSERT ON sm_family
BEGIN
    UPDATE sm_share_use SET changed = 1
        WHERE share > NEW.prefix AND share < NEW.prefix || replace(hex(zeroblob(64)), '0', char(1114111));
    UPDATE sm_lane_group SET asleep = 0, next = NULL
        WHERE asleep = 1 AND paused = 0 AND key > NEW.prefix
            AND key < NEW.prefix || replace(hex(zeroblob(64)), '0', char(1114111));
END;
CREATE TRIGGER sm_family_gone AFTER DELETE ON sm_family
BEGIN
    UPDATE sm_share_use SET changed = 1
        WHERE share > OLD.prefix AND share < OLD.prefix || replace(hex(zeroblob(64)), '0', char(1114111));
    UPDATE sm_lane_group SET asleep = 0, next = NULL
        WHERE asleep = 1 AND paused = 0 AND key > OLD.prefix
            AND key < OLD.prefix || replace(hex(zeroblob(64)), '0', char(1114111));
END;
CREATE TRIGGER sm_pause_over AFTER DELETE ON sm_pause
BEGIN
    UPDATE sm_lane_class SET closed = 0
        WHERE closed > 0 AND closed = CASE OLD.kind WHEN 0 THEN 3 WHEN 1 THEN 2 END AND refuser = OLD.name;
    UPDATE sm_lane_group SET asleep = 0, next = NULL
        WHERE asleep = 1 AND key = OLD.name AND paused = OLD.kind AND OLD.kind > 1;
END;
