-- Instants are microseconds since 1970, UTC. Names sort by their bytes. In a host's text, a NUL is stored as
-- U+001A '0' and a U+001A as U+001A '1'.

-- The tick lock. It excludes ticks and changes to anything that a tick plans with. The table stays empty: it is
-- only locked.
CREATE TABLE sm.tick_lock (one BOOLEAN PRIMARY KEY);

-- Definitions. slots, max: NULL is unlimited.
CREATE TABLE sm.pool (
    name        TEXT COLLATE "C" PRIMARY KEY,
    slots       BIGINT,
    keeps_slots BIGINT NOT NULL DEFAULT 0,
    description TEXT NOT NULL DEFAULT ''
);
INSERT INTO sm.pool (name, slots) VALUES ('default_pool', 128);
CREATE TABLE sm.task_limit (
    key    TEXT COLLATE "C" PRIMARY KEY,
    max    BIGINT,
    starts BIGINT,
    period BIGINT,
    burst  BIGINT,
    weight BIGINT
);
CREATE TABLE sm.family (
    prefix TEXT COLLATE "C" PRIMARY KEY,
    max    BIGINT,
    starts BIGINT,
    period BIGINT,
    burst  BIGINT,
    weight BIGINT
);
-- Paused subjects. kind: 0 queue, 1 pool, 2 limit key, 3 family.
CREATE TABLE sm.pause (
    kind BIGINT,
    name TEXT COLLATE "C",
    PRIMARY KEY (kind, name)
);
-- Caps on waiting tasks. kind: 0 queue, 2 limit key, 3 family. strict: 1 if enqueues under it take turns.
CREATE TABLE sm.cap (
    kind   BIGINT,
    name   TEXT COLLATE "C",
    most   BIGINT NOT NULL,
    strict BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Counters, changed only under the tick lock. A change inserts a version and deletes the previous one. So the
-- newest is found first, even if an old snapshot keeps many dead versions.
CREATE SEQUENCE sm.version;
CREATE TABLE sm.pool_use (
    name TEXT COLLATE "C",
    version BIGINT,
    used BIGINT NOT NULL,
    PRIMARY KEY (name, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE TABLE sm.limit_use (
    key  TEXT COLLATE "C",
    version BIGINT,
    used BIGINT NOT NULL,
    lanes BIGINT NOT NULL,
    PRIMARY KEY (key, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- The debt of each key to its rate, in versions as above: see docs/admission.md. starts, period: the rate when
-- the row was written. full_at: when the debt is paid.
CREATE TABLE sm.rate_use (
    key     TEXT COLLATE "C",
    version BIGINT,
    owed    BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    starts  BIGINT NOT NULL,
    period  BIGINT NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (key, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX rate_use_at ON sm.rate_use (at);
CREATE INDEX rate_use_full ON sm.rate_use (full_at, key);

-- The slots of a pool that a share's tasks hold, the number of its lanes whose own pool it is, and the values
-- that decide the share's turn: see docs/admission.md. In versions as above. A share with neither slots nor
-- lanes has no row.
CREATE TABLE sm.share_use (
    pool    TEXT COLLATE "C",
    share   TEXT COLLATE "C",
    version BIGINT,
    held    BIGINT NOT NULL,
    lanes   BIGINT NOT NULL,
    stamp   BIGINT NOT NULL,
    dither  BIGINT NOT NULL,
    PRIMARY KEY (pool, share, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
-- One row: the number of grants to tasks of shares.
CREATE TABLE sm.share_clock (
    grants BIGINT PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
INSERT INTO sm.share_clock VALUES (0);

-- Lanes, inserted and deleted under the tick lock and never changed. digest: of pool, slots, limits and queue,
-- see _lane_digest. queue: NULL is the default queue, here and everywhere. no: drawn from the sequence of task
-- numbers. A lane that an enqueue creates has the number of its first task, so the number is known before the
-- lane exists.
CREATE TABLE sm.lane (
    digest UUID PRIMARY KEY,
    no     BIGINT NOT NULL UNIQUE,
    slots  BIGINT NOT NULL CHECK (slots > 0),
    pool   TEXT COLLATE "C" NOT NULL,
    limits TEXT COLLATE "C" NOT NULL,
    queue  TEXT COLLATE "C"
);
-- ready, tasks: signed, because deltas are not folded in the order of their causes. tasks: those that have not
-- ended. rank to no: the bound. Every ready task that a tick can see is at or after this place, except those in
-- early.
CREATE TABLE sm.lane_use (
    digest       UUID,
    version      BIGINT,
    ready        BIGINT NOT NULL,
    tasks        BIGINT NOT NULL,
    rank         BIGINT NOT NULL,
    logical_date BIGINT NOT NULL,
    map_index    BIGINT NOT NULL,
    no           BIGINT NOT NULL,
    early        BIGINT[] NOT NULL,
    PRIMARY KEY (digest, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- Lanes that a partial fold left empty.
CREATE INDEX lane_use_empty ON sm.lane_use (digest) WHERE tasks = 0 AND ready = 0;

-- If many lanes have ready tasks, they are filed, so that no tick has to read them all: see
-- docs/postgresql-protocol.md. This table lists the lanes with ready tasks by the number of the lane.
CREATE TABLE sm.ready_lane (
    no     BIGINT PRIMARY KEY,
    digest UUID NOT NULL UNIQUE,
    queue  TEXT COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX ready_lane_queue ON sm.ready_lane (queue, no);
-- Filed lanes as a tree, ordered by first ready task. Each node is in versions as above. From the root: all
-- queues, a queue, a class of lanes, a group of lanes, a lane. The id of a lane's node is its digest. Lanes of
-- shares have a tree of their own, with contenders between a class and its groups.
-- first: the place of the first ready task below the node that does not sleep, or NULL.
-- from_no: of a queue, the lowest number of a lane with ready tasks.
-- about: the pools of a class with the slots of each, or the cause of a group.
-- sleeps: whether a mark says that nothing below the node fits.
-- pool, needs: of a class that waits for this many open slots.
-- key: of a group that waits for a limit key.
-- next: when the mark expires.
-- share: of a contender, whose about is its pool. Empty for a class of shares.
-- turn: of a contender, its level and the turn of its share. Above contenders, first is the least turn of a
-- contender with a task that does not sleep.
CREATE TABLE sm.lane_order (
    id      UUID,
    version BIGINT,
    parent  UUID,
    queue   TEXT COLLATE "C",
    about   TEXT COLLATE "C",
    first   BIGINT[],
    from_no BIGINT,
    sleeps  BOOLEAN NOT NULL DEFAULT false,
    pool    TEXT COLLATE "C",
    needs   BIGINT,
    key     TEXT COLLATE "C",
    next    BIGINT,
    share   TEXT COLLATE "C",
    turn    BIGINT[],
    PRIMARY KEY (id, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX lane_order_first ON sm.lane_order (parent, sleeps, first);
CREATE INDEX lane_order_turn ON sm.lane_order (parent, turn, share, first) WHERE turn IS NOT NULL AND first IS NOT NULL;
CREATE INDEX lane_order_share ON sm.lane_order (share, about) WHERE turn IS NOT NULL;
CREATE INDEX lane_order_asleep ON sm.lane_order (version) WHERE sleeps;
CREATE INDEX lane_order_pool ON sm.lane_order (pool, needs) WHERE pool IS NOT NULL;
CREATE INDEX lane_order_key ON sm.lane_order (key) WHERE key IS NOT NULL;
CREATE INDEX lane_order_next ON sm.lane_order (next) WHERE next IS NOT NULL;
CREATE INDEX lane_order_next_of ON sm.lane_order (queue, next) WHERE next IS NOT NULL;

-- One row, in versions as above. seen: the snapshot of the last whole fold. due: a lower bound of the instants
-- that tasks wait for, except those in early. many: whether lanes are filed, see lane_order.
CREATE TABLE sm.tick (
    no    BIGINT PRIMARY KEY,
    seen  TXID_SNAPSHOT NOT NULL,
    due   BIGINT NOT NULL,
    early BIGINT[] NOT NULL,
    many  BOOLEAN NOT NULL DEFAULT false
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
INSERT INTO sm.tick VALUES (1, '1:1:', -9223372036854775808, ARRAY[]::BIGINT[]);

-- Changes to counters that no tick has folded yet: one row per call and lane. Rows are never updated. There is
-- no CHECK that slots are positive, because the server prepares it again for each inserting statement. Here, as
-- in task, the writers ensure it.
-- ready, tasks: the increase. slots, leases: how many are given back. came: how many tasks became ready. rank
-- to no: the first place among these. due: the earliest instant waited for.
-- pool, lane_slots, limits, queue: the lane's needs, if tasks began to count. first: the number of the lane, if
-- it is new.
CREATE TABLE sm.delta (
    xid          BIGINT NOT NULL DEFAULT txid_current(),
    id           BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
    lane         UUID NOT NULL,
    ready        BIGINT NOT NULL,
    tasks        BIGINT NOT NULL,
    slots        BIGINT NOT NULL,
    leases       BIGINT NOT NULL,
    came         BIGINT NOT NULL,
    rank         BIGINT,
    logical_date BIGINT,
    map_index    BIGINT,
    no           BIGINT,
    due          BIGINT,
    first        BIGINT,
    lane_slots   BIGINT,
    pool         TEXT COLLATE "C",
    limits       TEXT COLLATE "C",
    queue        TEXT COLLATE "C",
    PRIMARY KEY (xid, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- The unfolded deltas, found without walking those that were folded before. Every reader of sums reads this
-- view. A delta counts if its row exists; the snapshot of the last whole fold only bounds the search.
-- That snapshot is useless if it is from another server, from which this schema was restored: then it may be
-- ahead of this server. A fold never records a snapshot beyond its own transaction number. So a snapshot ahead
-- of the transaction that wrote it is from another server, even once this one has caught up.
CREATE VIEW sm.unfolded AS
WITH last AS MATERIALIZED (
  SELECT CASE WHEN txid_snapshot_xmax(seen) <= txid_snapshot_xmax(txid_current_snapshot())
    AND (xmin::text::bigint - txid_snapshot_xmax(seen)) & 4294967295 < 2147483648 THEN seen
    ELSE '1:1:'::txid_snapshot END AS seen
  FROM sm.tick ORDER BY no DESC LIMIT 1),
late AS MATERIALIZED (SELECT txid_snapshot_xip(last.seen) AS xid FROM last)
SELECT delta.* FROM last CROSS JOIN LATERAL (
  SELECT * FROM sm.delta WHERE delta.xid >= txid_snapshot_xmax(last.seen) OFFSET 0) delta
UNION ALL
SELECT delta.* FROM late CROSS JOIN LATERAL (
  SELECT * FROM sm.delta WHERE delta.xid = late.xid OFFSET 0) delta;

-- Lanes including unfolded deltas. slots and limits: the needs of each task. slots_back, leases_back: what
-- deltas give back. bound: every ready task is at or after this place, except those in early. A lane known only
-- from deltas is included, under the number that the fold will give it.
CREATE VIEW sm.lane_now AS
WITH more AS MATERIALIZED (
  SELECT lane AS digest, sum(ready)::bigint AS ready, sum(tasks)::bigint AS tasks, sum(slots)::bigint AS slots_back,
    sum(leases)::bigint AS leases_back, min(first) AS first,
    min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE came > 0) AS head,
    min(pool) AS pool, min(lane_slots) AS slots, min(limits) AS limits, min(queue) AS queue
  FROM sm.unfolded GROUP BY lane
)
SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, was.ready + coalesce(more.ready, 0) AS ready,
  was.tasks + coalesce(more.tasks, 0) AS tasks, coalesce(more.slots_back, 0) AS slots_back,
  coalesce(more.leases_back, 0) AS leases_back, least(was.bound, more.head) AS bound, was.early, lane.queue
FROM sm.lane CROSS JOIN LATERAL (
  SELECT ready, tasks, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
LEFT JOIN more ON more.digest = lane.digest
UNION ALL
SELECT more.digest, more.first, more.pool, more.slots, more.limits,
  coalesce(was.ready, 0) + more.ready, coalesce(was.tasks, 0) + more.tasks, more.slots_back, more.leases_back,
  least(was.bound, more.head), coalesce(was.early, '{}'), more.queue
FROM more LEFT JOIN LATERAL (
  SELECT ready, tasks, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
  WHERE lane_use.digest = more.digest ORDER BY version DESC LIMIT 1) was ON true
WHERE NOT EXISTS (SELECT FROM sm.lane WHERE lane.digest = more.digest OFFSET 0);

-- The columns of a task that only `change` writes. lane: the digest of its needs, which are the last columns.
-- attempt_runs, bits: 1 attempts are recorded as runs, 2 the feed reports ends, 4 the feed reports other events
-- of its sensor, 8 all attempts are kept, 16 no attempts are kept.
CREATE SEQUENCE sm.task_no;
CREATE TABLE sm.task (
    no           BIGINT PRIMARY KEY,
    lane         UUID NOT NULL,
    rank         BIGINT NOT NULL,
    logical_date BIGINT NOT NULL,
    map_index    BIGINT NOT NULL,
    priority     BIGINT NOT NULL,
    slots        BIGINT NOT NULL,
    enqueued_at  BIGINT NOT NULL,
    lease_loss   BIGINT,
    attempt_runs BIGINT NOT NULL,
    namespace    TEXT COLLATE "C" NOT NULL,
    workflow     TEXT COLLATE "C" NOT NULL,
    run          TEXT COLLATE "C" NOT NULL,
    task         TEXT COLLATE "C" NOT NULL,
    pool         TEXT COLLATE "C" NOT NULL,
    limits       TEXT COLLATE "C" NOT NULL,
    queue        TEXT COLLATE "C",
    retry        TEXT,
    payload      TEXT NOT NULL
);
CREATE UNIQUE INDEX task_key ON sm.task (namespace, workflow, run, task, map_index);

-- The columns that moves write. A task has one row in one of ready, lease and idle. A move deletes it and
-- inserts the next one.
CREATE TABLE sm.ready (
    lane             UUID,
    rank             BIGINT,
    logical_date     BIGINT,
    map_index        BIGINT,
    no               BIGINT,
    ready_at         BIGINT NOT NULL,
    epoch            BIGINT NOT NULL DEFAULT 0,
    attempt          BIGINT NOT NULL DEFAULT 0,
    forgiven         BIGINT,
    lost             BIGINT,
    queued_at        BIGINT,
    first_started_at BIGINT,
    started_at       BIGINT,
    ended_at         BIGINT,
    finished         BIGINT,
    message          TEXT,
    value            TEXT,
    PRIMARY KEY (lane, rank, logical_date, map_index, no)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
-- started: whether the holder has started. runs: the task's attempt_runs, or NULL if 0. expires_at: when upkeep
-- looks at the lease. A later beat of the same epoch extends it. cancel_at: the deadline of a cancelled task;
-- no beat counts beyond it.
CREATE TABLE sm.lease (
    no               BIGINT PRIMARY KEY,
    epoch            BIGINT NOT NULL,
    lane             UUID NOT NULL,
    slots            BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    queued_at        BIGINT NOT NULL,
    attempt          BIGINT NOT NULL,
    ready_at         BIGINT NOT NULL,
    started          BIGINT NOT NULL DEFAULT 0,
    started_at       BIGINT,
    first_started_at BIGINT,
    ended_at         BIGINT,
    forgiven         BIGINT,
    lost             BIGINT,
    finished         BIGINT,
    runs             BIGINT,
    cancel_at        BIGINT,
    holder           TEXT COLLATE "C" NOT NULL,
    message          TEXT,
    value            TEXT
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
-- Only the primary key can look up leases by number. While an old snapshot keeps many dead versions, the server
-- takes the table for one of few rows and many pages, and may then prefer to walk any other index with this column.
CREATE INDEX lease_expiry ON sm.lease (expires_at) INCLUDE (no);
-- For lists: see docs/listing.md. A lease never changes its holder, so updates of it stay HOT. A query repeats the
-- condition, which all holders meet.
CREATE INDEX lease_holder ON sm.lease (holder, no) WHERE holder >= '';
-- state: 3 up_for_retry, 4 sensing, 5 scheduled and not yet due, or, if due is NULL, ready with slots that it
-- kept, 6 success, 7 failed, 8 skipped, 9 cancelled. slots: those it keeps. rank to map_index: its place, set
-- if admission reads it from this table. So a row here is ready if it has a place and due is NULL.
CREATE TABLE sm.idle (
    no               BIGINT PRIMARY KEY,
    state            BIGINT NOT NULL,
    epoch            BIGINT NOT NULL DEFAULT 0,
    lane             UUID NOT NULL,
    rank             BIGINT,
    logical_date     BIGINT,
    map_index        BIGINT,
    due              BIGINT,
    slots            BIGINT,
    ready_at         BIGINT NOT NULL,
    attempt          BIGINT NOT NULL DEFAULT 0,
    forgiven         BIGINT,
    lost             BIGINT,
    queued_at        BIGINT,
    first_started_at BIGINT,
    started_at       BIGINT,
    ended_at         BIGINT,
    finished         BIGINT,
    message          TEXT,
    value            TEXT
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX idle_due ON sm.idle (due, rank, logical_date, map_index, no) WHERE due IS NOT NULL;
CREATE INDEX idle_keeps ON sm.idle (lane) WHERE slots IS NOT NULL;
CREATE INDEX idle_keeping ON sm.idle (lane, rank, logical_date, map_index, no) WHERE due IS NULL AND rank IS NOT NULL;
CREATE INDEX idle_sensing ON sm.idle (lane, no) WHERE state = 4;
CREATE INDEX idle_ended ON sm.idle (state, ended_at, no) WHERE state >= 6;
-- For lists. A task that is enqueued ready and succeeds is in none of them.
CREATE INDEX idle_retry ON sm.idle (lane, no) WHERE state = 3;
CREATE INDEX idle_later ON sm.idle (lane, no) WHERE state = 5;

-- Kept attempts of a task's latest grants. state: the state that followed. by_holder: 1 if its holder ended it.
CREATE TABLE sm.attempt (
    no         BIGINT,
    epoch      BIGINT,
    attempt    BIGINT NOT NULL,
    queued_at  BIGINT,
    started_at BIGINT,
    ended_at   BIGINT NOT NULL,
    state      BIGINT NOT NULL,
    by_holder  BIGINT NOT NULL,
    holder     TEXT COLLATE "C",
    queue      TEXT COLLATE "C",
    message    TEXT,
    PRIMARY KEY (no, epoch)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- Heartbeats, from the first renewal on. Rows are only inserted; the latest expiry of an epoch counts.
CREATE TABLE sm.beat (
    no         BIGINT,
    id         BIGINT GENERATED ALWAYS AS IDENTITY,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (no, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- The latest note of a task's holder about its work, if any. It counts while the task has a lease of this
-- epoch, and is deleted with the task.
CREATE TABLE sm.note (
    no    BIGINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    at    BIGINT NOT NULL,
    text  TEXT NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- The names by which callers of `serialize` take turns.
CREATE TABLE sm.turn (
    name TEXT COLLATE "C" PRIMARY KEY,
    at   BIGINT NOT NULL
);
CREATE INDEX turn_at ON sm.turn (at, name);

-- The queues that each holder's ticks serve, changed under the tick lock. queues: a sorted JSON array, or null
-- for all. digest: the first 128 bits of its SHA-256, because many names are too long for an index. until: when
-- the row stops counting.
CREATE TABLE sm.serving (
    holder  TEXT COLLATE "C",
    digest  UUID,
    queues  TEXT NOT NULL,
    announced_at BIGINT NOT NULL,
    lease   BIGINT NOT NULL,
    until   BIGINT NOT NULL,
    PRIMARY KEY (holder, digest)
) WITH (fillfactor = 70);

-- Returns the limit keys that the tasks of a lane carry, and how much each task counts against them. The
-- argument is the lane's limits. It is a JSON array of keys with count 1, arrays of key and count, an array of
-- key, count and priority for the share, and objects for the other pools. The server inlines this function and
-- _pools_of into the statements that call them.
CREATE FUNCTION sm._carried(TEXT) RETURNS TABLE (key TEXT, count BIGINT)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$SELECT CASE json_typeof(need) WHEN 'array' THEN need ->> 0 ELSE need #>> '{}' END,
  CASE json_typeof(need) WHEN 'array' THEN (need ->> 1)::bigint ELSE 1 END
FROM json_array_elements($1::json) given (need) WHERE json_typeof(need) <> 'object'$$;

-- Returns the pools that the tasks of a lane need, and the slots of each. The arguments are the lane's pool,
-- slots and limits.
CREATE FUNCTION sm._pools_of(TEXT, BIGINT, TEXT) RETURNS TABLE (pool TEXT, slots BIGINT)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$SELECT $1, $2
UNION ALL
SELECT need ->> 'pool', (need ->> 'slots')::bigint
FROM json_array_elements((CASE WHEN $3 LIKE '%{%' THEN $3 END)::json) given (need)
WHERE json_typeof(need) = 'object'$$;

-- Returns the pools that the tasks of a lane need, with the slots of each, if they are of a share. The
-- arguments are the lane's pool, slots and limits. The share is an array of key, count and priority.
CREATE FUNCTION sm._shares_of(TEXT, BIGINT, TEXT) RETURNS TABLE (pool TEXT, share TEXT, slots BIGINT, level BIGINT)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$SELECT part.pool, given.need ->> 0, part.slots, -(given.need ->> 2)::bigint
FROM json_array_elements((CASE WHEN $3 LIKE '%]%]' THEN $3 END)::json) given (need)
CROSS JOIN LATERAL (
  SELECT $1, $2
  UNION ALL
  SELECT other ->> 'pool', (other ->> 'slots')::bigint
  FROM json_array_elements((CASE WHEN $3 LIKE '%{%' THEN $3 END)::json) others (other)
  WHERE json_typeof(other) = 'object') part (pool, slots)
WHERE CASE json_typeof(given.need) WHEN 'array' THEN json_array_length(given.need) = 3 END$$;

-- Whether a cap may hold for tasks of these queues or with these limits, one text per lane. It may return true
-- for a key that is exempt from its family or has a longer prefix: _caps decides that. Called only if the store
-- has a cap at all.
CREATE FUNCTION sm._is_capped(queues TEXT[], limits TEXT[]) RETURNS BOOLEAN LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM unnest(queues) asked (name)
    CROSS JOIN LATERAL (SELECT FROM sm.cap WHERE kind = 0 AND cap.name = coalesce(asked.name, 'default') OFFSET 0) capped
  ) OR EXISTS (
    SELECT FROM unnest(limits) lane (limits) CROSS JOIN LATERAL sm._carried(lane.limits) carried
    CROSS JOIN LATERAL (SELECT FROM sm.cap WHERE kind = 2 AND cap.name = carried.key OFFSET 0) capped
  ) OR EXISTS (
    SELECT FROM unnest(limits) lane (limits) CROSS JOIN LATERAL sm._carried(lane.limits) carried
    CROSS JOIN LATERAL (SELECT FROM sm.cap WHERE kind = 3 AND starts_with(carried.key, cap.name) OFFSET 0) capped
  );
END $$;

-- Stable, because convert_to is. A function that is declared less volatile than its parts is not inlined: the
-- server would parse and plan it again at each call.
CREATE FUNCTION sm._lane_digest(pool TEXT, slots BIGINT, limits TEXT, queue TEXT) RETURNS UUID
LANGUAGE sql STABLE PARALLEL SAFE AS
$$SELECT encode(substr(sha256(convert_to(
  $2::text || ' ' || octet_length($1)::text || ' ' || $1 || $3 || coalesce(' ' || $4, ''), 'UTF8')), 1, 16), 'hex')::uuid$$;

-- Ticks that granted tasks, with the numbers and epochs of these.
CREATE TABLE sm.request (
    id     TEXT COLLATE "C" PRIMARY KEY,
    at     BIGINT NOT NULL,
    nos    BIGINT[] NOT NULL,
    epochs BIGINT[] NOT NULL
);
CREATE INDEX request_at ON sm.request (at, id);
