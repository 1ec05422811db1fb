-- Namespaces by a digest of their names, so that no one waits for a transaction that uses a new name. Rows are
-- only inserted. Two transactions that use a new name at the same time insert it twice.
CREATE TABLE sm.namespace (
    no   UUID,
    id   BIGINT GENERATED ALWAYS AS IDENTITY,
    name TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (no, id)
);

-- How far closed runs that were ever filed under nodes with this lowest set bit reached before and after their
-- nodes. The largest row of a bit counts. mask: the bits above it. Node 0 has neither.
CREATE TABLE sm.level (
    ns     UUID,
    bit    BIGINT,
    id     BIGINT GENERATED ALWAYS AS IDENTITY,
    mask   BIGINT NOT NULL,
    before BIGINT NOT NULL,
    after  BIGINT NOT NULL,
    PRIMARY KEY (ns, bit, id)
);

-- node: where the fork-node index files a closed run; NULL while it is open.
-- status: 3 is suspended. suspended: a JSON array of [from, to or null], or NULL.
-- nodes: a JSON array of [since, nodes], or NULL for one node.
CREATE TABLE sm.run (
    ns         UUID NOT NULL,
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
    nodes      TEXT,
    attributes TEXT,
    PRIMARY KEY (ns, start, id) INCLUDE (stop)
);
-- By id first: a window query knows only the namespace, and must not be able to choose this index.
CREATE UNIQUE INDEX run_key ON sm.run (id, ns);
CREATE INDEX run_open ON sm.run (ns, start) INCLUDE (id) WHERE stop IS NULL;
CREATE INDEX run_node_start ON sm.run (ns, node, start) INCLUDE (id) WHERE node IS NOT NULL;
CREATE INDEX run_node_stop ON sm.run (ns, node, stop) INCLUDE (start, id) WHERE node IS NOT NULL;
CREATE INDEX run_watched ON sm.run (heartbeat) WHERE heartbeat IS NOT NULL AND stop IS NULL AND status <> 3;

-- Heartbeats that arrived while another transaction had their run locked. Rows are only inserted, and deleted
-- once they are recorded in the run.
CREATE TABLE sm.run_beat (
    ns  UUID,
    run TEXT COLLATE "C",
    id  BIGINT GENERATED ALWAYS AS IDENTITY,
    at  BIGINT NOT NULL,
    PRIMARY KEY (ns, run, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
