-- Instants are microseconds since 1970, UTC. Names sort by their bytes. What becomes of a NUL or a U+001A in a
-- host's text: U+001A '0', U+001A '1'.

-- What excludes ticks, and whatever changes what a tick plans with. Always empty: it is only locked.
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
-- What is paused. kind: 0 queue, 1 pool, 2 limit key, 3 family.
CREATE TABLE sm.pause (
    kind BIGINT,
    name TEXT COLLATE "C",
    PRIMARY KEY (kind, name)
);
-- The most tasks that wait. kind: 0 queue, 2 limit key, 3 family. strict: 1 if enqueues under it take turns.
CREATE TABLE sm.cap (
    kind   BIGINT,
    name   TEXT COLLATE "C",
    most   BIGINT NOT NULL,
    strict BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Counters, changed under the tick lock alone. A change inserts a version and deletes the one before, so that
-- the newest is found first, however many dead ones an old snapshot keeps.
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

-- What keys owe to their rates, in versions as above: see docs/admission.md. starts, period: the rate under which it
-- was written. full_at: when nothing is owed any more.
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

-- What the tasks of a share hold of a pool, how many lanes of it have the pool for their own, and what decides when it
-- has its turn: see docs/admission.md. In versions as above. What has neither slots nor lanes has no row.
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

-- Lanes: made and removed under the tick lock, never changed. digest: of pool, slots, limits and queue, see
-- _lane_digest. queue: NULL is the default one, here and everywhere. no: drawn like those of tasks, and that of the first task that was enqueued into a new lane, so it is known before the lane is.
CREATE TABLE sm.lane (
    digest UUID PRIMARY KEY,
    no     BIGINT NOT NULL UNIQUE,
    slots  BIGINT NOT NULL CHECK (slots > 0),
    pool   TEXT COLLATE "C" NOT NULL,
    limits TEXT COLLATE "C" NOT NULL,
    queue  TEXT COLLATE "C"
);
-- ready, tasks: signed, because deltas are not folded in the order of their causes. tasks: those that have
-- not ended. rank to no: no ready task that a tick can see stands before this place, but for those in early.
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

-- Lanes that a fold that was not whole has left empty.
CREATE INDEX lane_use_empty ON sm.lane_use (digest) WHERE tasks = 0 AND ready = 0;

-- Where many lanes have ready tasks, these are filed, so that no tick need read them all: see
-- docs/postgresql-protocol.md. What has ready tasks, under the number of the lane.
CREATE TABLE sm.ready_lane (
    no     BIGINT PRIMARY KEY,
    digest UUID NOT NULL UNIQUE,
    queue  TEXT COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX ready_lane_queue ON sm.ready_lane (queue, no);
-- These by their first ready tasks, as a tree, each node in versions as above: all
-- queues, a queue, a class of lanes, a group of these, and a lane, whose id is its digest. Lanes of shares are in a tree
-- of their own, in which contenders are between a class and its groups. first: the place of the first
-- ready task below it that does not sleep, or NULL. from_no: of queues, the least number of a lane with ready tasks. about:
-- the pools of a class and the slots of each, or the cause of a group.
-- sleeps: whether a mark says that nothing below it fits. pool, needs: of a class that waits for so many open slots.
-- key: of a group that waits for a limit key. next: when the mark ends by itself.
-- share: of a contender, whose about is its pool; of a class of shares it is empty. turn: of a contender, its level and
-- the turn of its share. The first of what is above contenders is the least turn of those with a task that does not sleep.
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

-- One row, in versions as above. seen: what the last whole fold saw. due: no task that waits for an instant
-- waits for an earlier one, but for those in early. many: whether lanes are filed, see lane_order.
CREATE TABLE sm.tick (
    no    BIGINT PRIMARY KEY,
    seen  TXID_SNAPSHOT NOT NULL,
    due   BIGINT NOT NULL,
    early BIGINT[] NOT NULL,
    many  BOOLEAN NOT NULL DEFAULT false
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
INSERT INTO sm.tick VALUES (1, '1:1:', -9223372036854775808, ARRAY[]::BIGINT[]);

-- What transactions change about counters, until a tick folds it: one row per call and lane. Never updated. The server
-- prepares a CHECK anew for each statement that inserts, so here, as in task, only those who write see to it that slots
-- are positive.
-- ready, tasks: how many more. slots, leases: what comes back. came: how many became ready; rank to no: the
-- least place of these. due: the least instant waited for. pool, lane_slots, limits, queue: the lane's needs, where
-- tasks began to count; first: the number of the lane, if it is new.
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

-- The deltas that exist, found without walking those that were folded before: what every reader of sums
-- reads. Whether a row exists decides; what the last whole fold saw only bounds the search. It says nothing
-- if it is of another server, from which this schema was restored: then it may be ahead of this one. A fold
-- notes nothing beyond its own number, so what is ahead of the transaction that wrote it here is of another
-- server, also once this one has caught up.
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

-- Lanes as they are with the deltas that are not folded yet. slots and limits: what each task of it needs;
-- slots_back, leases_back: what deltas return. bound: no ready task stands before this place, but for those in
-- early. A lane that only deltas know is among them, under the number that the fold will give it.
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

-- What only `change` changes about a task. lane: the digest of its needs, which are the last columns. attempt_runs, bits: 1 its
-- attempts are recorded as runs, 2 and 4 what the feed tells: its ends, what else its sensor does, 8 all of its attempts are kept, 16 none.
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

-- What moves. A task has one row in one of ready, lease and idle; a move deletes it and inserts the next.
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
-- started: whether the holder began. runs: attempt_runs of the task, or NULL if 0. expires_at: when upkeep looks at it. A later beat of the same epoch
-- makes the lease last longer. cancel_at: the deadline of a task that was cancelled, beyond which no beat counts.
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
CREATE INDEX lease_expiry ON sm.lease (expires_at, no);
-- For lists: see docs/listing.md. A lease keeps its holder, so updates of it stay HOT.
CREATE INDEX lease_holder ON sm.lease (holder, no);
-- state: 3 up_for_retry, 4 sensing, 5 scheduled and not yet due or, without a due instant, ready with slots that it
-- kept, 6 success, 7 failed, 8 skipped, 9 cancelled. slots: what it keeps. rank to map_index: its place, where
-- admission reads it here. So what is ready here is what has a place and no due instant.
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

-- Attempts that are kept, of the latest grants of a task. state: the one that followed. by_holder: 1 if its holder
-- ended it.
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

-- Heartbeats, from the first renewal on. Only inserted; the latest expiry of an epoch counts.
CREATE TABLE sm.beat (
    no         BIGINT,
    id         BIGINT GENERATED ALWAYS AS IDENTITY,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (no, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- What the holder of the latest lease said about its work, if it said anything. It counts while the task has a lease of this
-- epoch, and goes with the task.
CREATE TABLE sm.note (
    no    BIGINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    at    BIGINT NOT NULL,
    text  TEXT NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);

-- What lets the callers of `serialize` take turns.
CREATE TABLE sm.turn (
    name TEXT COLLATE "C" PRIMARY KEY,
    at   BIGINT NOT NULL
);
CREATE INDEX turn_at ON sm.turn (at, name);

-- Which queues the ticks of each holder serve, changed under the tick lock. queues: a JSON array, sorted, or null
-- for all; digest: its first 128 bits of SHA-256, because many names are too long for an index. until: when it
-- stops counting.
CREATE TABLE sm.serving (
    holder  TEXT COLLATE "C",
    digest  UUID,
    queues  TEXT NOT NULL,
    told_at BIGINT NOT NULL,
    lease   BIGINT NOT NULL,
    until   BIGINT NOT NULL,
    PRIMARY KEY (holder, digest)
) WITH (fillfactor = 70);

-- The limit keys that the tasks of a lane carry, and how much each counts against them: of a lane's
-- limits, a JSON array of keys
-- where a task counts 1, of arrays of key and count, of one of these with the priority, which is the share, and of the
-- other pools that it needs. The server puts the bodies
-- of both functions into the statements that call them.
CREATE FUNCTION sm._carried(TEXT) RETURNS TABLE (key TEXT, count BIGINT)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$SELECT CASE json_typeof(need) WHEN 'array' THEN need ->> 0 ELSE need #>> '{}' END,
  CASE json_typeof(need) WHEN 'array' THEN (need ->> 1)::bigint ELSE 1 END
FROM json_array_elements($1::json) given (need) WHERE json_typeof(need) <> 'object'$$;

-- The pools that the tasks of a lane need, and the slots of each: of its pool, slots and limits.
CREATE FUNCTION sm._pools_of(TEXT, BIGINT, TEXT) RETURNS TABLE (pool TEXT, slots BIGINT)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$SELECT $1, $2
UNION ALL
SELECT need ->> 'pool', (need ->> 'slots')::bigint
FROM json_array_elements((CASE WHEN $3 LIKE '%{%' THEN $3 END)::json) given (need)
WHERE json_typeof(need) = 'object'$$;

-- The pools that the tasks of a lane need, with the slots of each, if they are of a share: of its pool, slots and
-- limits. The share is an array of the key, the count and the priority.
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

-- Whether a cap may hold for tasks of these queues, or with these limits, a text for each lane. It asks no more than
-- that: whether a key is exempt from its family, or has one with a longer prefix, is up to _caps. Called only where
-- the store has a cap at all.
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

-- Stable, because convert_to is: the body of a function that says more of itself than of its parts is not put into the
-- statements that call it, and each call of these would parse and plan it again.
CREATE FUNCTION sm._lane_digest(pool TEXT, slots BIGINT, limits TEXT, queue TEXT) RETURNS UUID
LANGUAGE sql STABLE PARALLEL SAFE AS
$$SELECT encode(substr(sha256(convert_to(
  $2::text || ' ' || octet_length($1)::text || ' ' || $1 || $3 || coalesce(' ' || $4, ''), 'UTF8')), 1, 16), 'hex')::uuid$$;

-- Ticks that granted something, and what: the numbers of the tasks, and their epochs.
CREATE TABLE sm.request (
    id     TEXT COLLATE "C" PRIMARY KEY,
    at     BIGINT NOT NULL,
    nos    BIGINT[] NOT NULL,
    epochs BIGINT[] NOT NULL
);
CREATE INDEX request_at ON sm.request (at, id);
