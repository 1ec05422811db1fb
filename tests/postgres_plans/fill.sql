-- Many rows of every kind: of tasks, {waiting} ready ones and {other} of all other states; of everything else, as
-- many as there are tasks.
INSERT INTO sm.task (no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, attempt_runs,
  namespace, workflow, run, task, pool, limits, payload)
  SELECT i, md5((i % 7)::text)::uuid, 1, 0, -1, 0, 1, 0, 0, 'n', 'w', 'r', 't' || i, 'p', '[]', ''
  FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at)
  SELECT lane, rank, logical_date, map_index, no, 0 FROM sm.task WHERE no <= {waiting};
INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, holder)
  SELECT no, 1, lane, 1, no, 0, 1, 0, 'h' FROM sm.task WHERE no > {waiting} AND no % 3 = 0;
INSERT INTO sm.beat (no, epoch, expires_at) SELECT no, 1, no FROM sm.lease;
INSERT INTO sm.note (no, epoch, at, text) SELECT i, 1, i, 'half' FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.idle (no, state, lane, rank, logical_date, map_index, due, ready_at, ended_at)
  SELECT no, 3 + no % 6, lane, CASE WHEN no % 6 IN (0, 2) THEN 1 END, CASE WHEN no % 6 IN (0, 2) THEN 0 END,
    CASE WHEN no % 6 IN (0, 2) THEN -1 END, CASE WHEN no % 6 IN (0, 2) THEN no END, 0, no
  FROM sm.task WHERE no > {waiting} AND no % 3 > 0;
INSERT INTO sm.attempt (no, epoch, attempt, ended_at, state, by_holder)
  SELECT no, 1, 1, 0, 3, 1 FROM sm.task;
INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came)
  SELECT md5(no::text)::uuid, 0, 0, 0, 0, 0 FROM sm.task WHERE no > {waiting};
INSERT INTO sm.namespace (no, name) SELECT md5(i::text)::uuid, 'n' || i FROM generate_series(1, 300) i;
INSERT INTO sm.level (ns, bit, mask, before, after)
  SELECT no, bit, 0, 9, 9 FROM sm.namespace, generate_series(1, 20) bit;
INSERT INTO sm.run (ns, node, start, stop, status, method, id)
  SELECT md5((i % 299 + 1)::text)::uuid, CASE WHEN i % 5 > 0 THEN i END, i, CASE WHEN i % 5 > 0 THEN i END, 0, 0, 'r' || i
  FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.sensor (no, epoch, state, fingerprint, attempt, generation, interval, timeout, on_landed,
  on_missed, registered_at, times_out_at, kind, context)
  SELECT i, 1, CASE WHEN i <= {waiting} THEN 0 ELSE 1 END, i, 1, 1, 1, 1, 0, 0, 0, 0, 'k', '{}'
  FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.sensor_change (seq, no, waiting) SELECT i, i, i <= {waiting} FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.sensor_inbox (no, kind) SELECT i, i % 3 FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.feed (seq, no, attempt, at, state, map_index, namespace, workflow, run, task)
  SELECT i, i, 1, 0, 6, -1, 'n', 'w', 'r', 't' || i FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.feed_inbox (no, attempt, at, state, map_index, namespace, workflow, run, task)
  SELECT i, 1, 0, 6, -1, 'n', 'w', 'r', 't' || i FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.lane (digest, no, pool, slots, limits) SELECT md5(i::text)::uuid, i, 'p', 1, '[]' FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.lane_use SELECT digest, no, CASE WHEN no % 100 = 0 THEN 1 ELSE 0 END, 1, 0, 0, 0, 0, '{}' FROM sm.lane;
INSERT INTO sm.task_limit (key, max) SELECT 'k' || i, 1 FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.limit_use SELECT 'k' || i, i, 0, 1 FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.pool (name) SELECT 'p' || i FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.pool_use SELECT 'p' || i, i, 1 FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.share_use SELECT 'p' || i, 's' || i, i, 1, 1, i, 0 FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.request (id, at, nos, epochs) SELECT 'q' || i, i, '{}', '{}' FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.worker (name, codes, shards, expires_at, incarnation, kinds) SELECT 'w' || i, 1, 1, i, i, 'null' FROM generate_series(1, {waiting} + {other}) i;
INSERT INTO sm.shard (shard, kind, holder, epoch, expires_at, load)
  SELECT i / 2, CASE WHEN i % 2 = 0 THEN '' ELSE 'k' END, 'w' || i, 1, i, i FROM generate_series(1, {waiting} + {other}) i;
