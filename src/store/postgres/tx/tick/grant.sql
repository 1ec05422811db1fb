-- Grants those of the tasks that are ready, or all or none, and starts them if asked. Tasks whose attempts are
-- recorded as runs are not started: a run's row may be locked, and a tick waits for no row. Takes slots and
-- counts against limits whether or not there is room. Records the grant under the tick's name. Only if it
-- granted something does it delete the record that this one replaces. Returns each task as `tasks_by_id` does,
-- whether there was room for all, and whether every lane has its counter and every task its record.
-- $1: the tasks in order of admission. $2: holder. $3: expiry. $4: now. $5, $6: the name of the tick, and of
-- the one that it replaces, or NULL.
-- $7 to $11: one array per column of the new bounds: lane and place. Other lanes keep theirs.
-- $12, $13: the tasks of these lanes that stay ready before the bounds: lane and number. $14: 1 for all or
-- none.
-- $15: 1 to start them. $16 to $19: the places of the tasks: lane, rank, logical date, map index; or four empty
-- arrays. $20: those of the tasks that may be ready with slots that they kept.
-- $21: 1 to fail (22012) unless it can grant all with room for all, because its commit is sent along.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $16::uuid[], $17::bigint[], $18::bigint[], $19::bigint[])
    WITH ORDINALITY given (no, lane, rank, logical_date, map_index, place)
),
-- Skips rows locked by other transactions, because a tick waits for no row. A row of ready is never updated, so
-- its ctid is as good as its key.
locked AS MATERIALIZED (
  SELECT ready.at FROM given
  LEFT JOIN LATERAL (
    SELECT lane, rank, logical_date, map_index FROM sm.task
    WHERE task.no = given.no AND given.lane IS NULL OFFSET 0) task ON true
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready
    WHERE ready.lane = coalesce(given.lane, task.lane) AND ready.rank = coalesce(given.rank, task.rank)
      AND ready.logical_date = coalesce(given.logical_date, task.logical_date)
      AND ready.map_index = coalesce(given.map_index, task.map_index) AND ready.no = given.no
    FOR UPDATE SKIP LOCKED) ready
),
-- Tasks that already hold all of their slots.
locked_keeping AS MATERIALIZED (
  SELECT idle.no FROM unnest($20::bigint[]) keeping (no)
  CROSS JOIN LATERAL (
    SELECT no FROM sm.idle WHERE idle.no = keeping.no AND due IS NULL AND rank IS NOT NULL FOR UPDATE SKIP LOCKED) idle
),
wanted AS MATERIALIZED (
  SELECT CASE WHEN $21::bigint = 1 THEN 1 / is_whole::int = 1 ELSE is_whole OR $14::bigint = 0 END AS is_whole
  FROM (
    SELECT (SELECT count(*) FROM locked) + (SELECT count(*) FROM locked_keeping) = cardinality($1::bigint[]) AS is_whole
  ) counted
),
gone_ready AS (
  DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM locked WHERE (SELECT is_whole FROM wanted)))
  RETURNING ready.*
),
gone_keeping AS (
  DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM locked_keeping WHERE (SELECT is_whole FROM wanted)))
  RETURNING idle.*
),
gone AS (
  SELECT no, lane, rank, logical_date, map_index, epoch, attempt, forgiven, lost, ready_at, queued_at,
    first_started_at, started_at, ended_at, finished, message, value, 1 AS misses
  FROM gone_ready
  UNION ALL
  SELECT no, lane, rank, logical_date, map_index, epoch, attempt, forgiven, lost, ready_at, queued_at,
    first_started_at, started_at, ended_at, finished, message, value, 0
  FROM gone_keeping
),
granted AS MATERIALIZED (
  SELECT gone.no, gone.lane, gone.rank, gone.logical_date, gone.map_index, gone.epoch + 1 AS epoch,
    least(gone.attempt + 1, 4294967295) AS attempt, gone.forgiven, gone.lost, gone.ready_at, gone.first_started_at,
    gone.started_at, gone.ended_at, gone.finished, gone.message, gone.value, gone.misses, task.namespace, task.workflow, task.run,
    task.task, task.priority, task.slots, task.lease_loss, task.attempt_runs, task.enqueued_at, task.retry,
    task.payload, task.pool, task.limits, task.queue, CASE WHEN task.attempt_runs & 1 = 0 THEN $15::bigint ELSE 0 END AS started,
    greatest($4::bigint, task.enqueued_at, gone.ready_at, gone.queued_at, gone.started_at, gone.ended_at) AS at
  FROM gone CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = gone.no OFFSET 0) task
),
new_leases AS (
  INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, started, started_at,
    first_started_at, ended_at, forgiven, lost, finished, runs, holder, message, value)
  SELECT no, epoch, lane, slots, $3::bigint, at, attempt, ready_at, started,
    CASE started WHEN 1 THEN at ELSE started_at END, coalesce(first_started_at, CASE started WHEN 1 THEN at END),
    ended_at, forgiven, lost, finished, nullif(attempt_runs, 0), $2::text, message, value
  FROM granted
),
taken AS MATERIALIZED (
  SELECT lane AS digest, count(*) AS tasks, sum(misses)::bigint AS missing, min(slots) AS slots, min(pool) AS pool,
    min(limits) AS limits
  FROM granted GROUP BY lane
),
-- Parts are grouped, never joined. If the server expects one row, it joins by looping over all.
lanes AS MATERIALIZED (
  SELECT part.digest, was.at, was.ready - part.missing AS ready, was.tasks,
    coalesce(part.bound, ARRAY[was.rank, was.logical_date, was.map_index, was.no]) AS bound,
    CASE WHEN part.bound IS NULL THEN was.early ELSE coalesce(part.early, '{}') END AS early
  FROM (
    SELECT digest, sum(missing)::bigint AS missing, max(bound) AS bound,
      array_agg(early) FILTER (WHERE early IS NOT NULL) AS early
    FROM (
      SELECT digest, missing, NULL::bigint[] AS bound, NULL::bigint AS early FROM taken
      UNION ALL
      SELECT digest, NULL, ARRAY[rank, logical_date, map_index, no], NULL
      FROM unnest($7::uuid[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
        raised (digest, rank, logical_date, map_index, no)
      UNION ALL
      SELECT lane, NULL, NULL, no FROM unnest($12::uuid[], $13::bigint[]) early (lane, no)
    ) parts
    GROUP BY digest HAVING count(missing) > 0
  ) part
  CROSS JOIN LATERAL (
    SELECT ctid AS at, * FROM sm.lane_use WHERE lane_use.digest = part.digest ORDER BY version DESC LIMIT 1) was
),
old_lanes AS (DELETE FROM sm.lane_use WHERE ctid = ANY (ARRAY(SELECT at FROM lanes))),
new_lanes AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
  SELECT digest, nextval('sm.version'), ready, tasks, bound[1], bound[2], bound[3], bound[4], early FROM lanes
),
pools AS MATERIALIZED (
  SELECT asked.pool, was.at, coalesce(was.used, 0) + asked.slots AS used,
    pool.name IS NOT NULL AND (pool.slots IS NULL OR coalesce(was.used, 0) + asked.slots <= pool.slots) AS had_room
  FROM (
    SELECT part.pool, sum(taken.missing * part.slots)::bigint AS slots
    FROM taken CROSS JOIN LATERAL sm._pools_of(taken.pool, taken.slots, taken.limits) part
    WHERE taken.missing > 0 GROUP BY part.pool
  ) asked
  LEFT JOIN LATERAL (SELECT name, slots FROM sm.pool WHERE pool.name = asked.pool OFFSET 0) pool ON true
  LEFT JOIN LATERAL (
    SELECT ctid AS at, used FROM sm.pool_use WHERE pool_use.name = asked.pool
    ORDER BY version DESC LIMIT 1) was ON true
),
old_pools AS (DELETE FROM sm.pool_use WHERE ctid = ANY (ARRAY(SELECT at FROM pools))),
new_pools AS (INSERT INTO sm.pool_use (name, version, used) SELECT pool, nextval('sm.version'), used FROM pools),
-- If lanes carry limits:
limits AS MATERIALIZED (
  SELECT asked.key, was.at, coalesce(was.used, 0) + asked.tasks AS used, coalesce(was.lanes, 0) AS lanes,
    limited.max IS NULL OR coalesce(was.used, 0) + asked.tasks <= limited.max AS had_room
  FROM (
    SELECT carried.key, sum(taken.tasks * carried.count)::bigint AS tasks
    FROM taken CROSS JOIN LATERAL sm._carried(taken.limits) carried GROUP BY carried.key
  ) asked
  LEFT JOIN LATERAL (SELECT max FROM sm.task_limit WHERE task_limit.key = asked.key OFFSET 0) limited ON true
  LEFT JOIN LATERAL (
    SELECT ctid AS at, used, lanes FROM sm.limit_use WHERE limit_use.key = asked.key
    ORDER BY version DESC LIMIT 1) was ON true
),
old_limits AS (DELETE FROM sm.limit_use WHERE ctid = ANY (ARRAY(SELECT at FROM limits))),
new_limits AS (
  INSERT INTO sm.limit_use (key, version, used, lanes) SELECT key, nextval('sm.version'), used, lanes FROM limits
),
-- stamp_shares writes the stamps of the shares that had turns.
shares AS MATERIALIZED (
  SELECT asked.pool, asked.share, was.at, coalesce(was.held, 0) + asked.slots AS held, coalesce(was.lanes, 0) AS lanes,
    coalesce(was.stamp, 2 * clock.grants) AS stamp, coalesce(was.dither, 0) AS dither
  FROM (
    SELECT part.pool, part.share, sum(taken.missing * part.slots)::bigint AS slots
    FROM taken CROSS JOIN LATERAL sm._shares_of(taken.pool, taken.slots, taken.limits) part
    WHERE taken.missing > 0 GROUP BY part.pool, part.share
  ) asked
  CROSS JOIN LATERAL (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1) clock
  LEFT JOIN LATERAL (
    SELECT ctid AS at, held, lanes, stamp, dither FROM sm.share_use
    WHERE share_use.pool = asked.pool AND share_use.share = asked.share ORDER BY version DESC LIMIT 1) was ON true
),
old_shares AS (DELETE FROM sm.share_use WHERE ctid = ANY (ARRAY(SELECT at FROM shares))),
new_shares AS (
  INSERT INTO sm.share_use (pool, share, version, held, lanes, stamp, dither)
  SELECT pool, share, nextval('sm.version'), held, lanes, stamp, dither FROM shares
),
-- In any case:
replaced AS (
  DELETE FROM sm.request WHERE id = $6::text AND $6::text <> $5::text AND EXISTS (SELECT FROM granted)
),
noted AS (
  INSERT INTO sm.request (id, at, nos, epochs)
  SELECT $5::text, $4::bigint, array_agg(no ORDER BY place), array_agg(epoch ORDER BY place)
  FROM (
    SELECT no, max(place) AS place, max(epoch) AS epoch FROM (
      SELECT no, place, NULL::bigint AS epoch FROM given UNION ALL SELECT no, NULL, epoch FROM granted
    ) parts
    GROUP BY no HAVING count(epoch) > 0
  ) placed
  HAVING $5::text IS NOT NULL AND count(*) > 0
  ON CONFLICT (id) DO UPDATE SET at = excluded.at, nos = excluded.nos, epochs = excluded.epochs
),
checked AS MATERIALIZED (
  SELECT NOT EXISTS (SELECT FROM pools WHERE NOT had_room)
    -- If lanes carry limits:
    AND NOT EXISTS (SELECT FROM limits WHERE NOT had_room)
    -- In any case:
    AS had_room,
    (SELECT count(*) FROM lanes) = (SELECT count(*) FROM taken)
      AND (SELECT count(*) FROM gone) = (SELECT count(*) FROM granted) AS is_counted
)
SELECT no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority, 1 + started,
  NULL::bigint, epoch, slots, $3::bigint, attempt, coalesce(forgiven, 0), lease_loss, attempt_runs, enqueued_at, at,
  coalesce(first_started_at, CASE started WHEN 1 THEN at END), CASE started WHEN 1 THEN at ELSE started_at END,
  ended_at, $2::text, retry, message, value, payload, ready_at, coalesce(lost, 0), finished, NULL::bigint, pool, slots, limits, queue,
  CASE WHEN $21::bigint = 1 THEN 1 / checked.had_room::int = 1 ELSE checked.had_room END,
  CASE WHEN $21::bigint = 1 THEN 1 / checked.is_counted::int = 1 ELSE checked.is_counted END
FROM granted CROSS JOIN checked
