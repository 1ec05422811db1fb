-- What a tick ahead read: what survey_few returns, as of before the grant, the next instant that a task waits for,
-- whether the feed reports one of the ends, and whether what it gave back frees nothing. That is true if all of it was
-- of the lane that has ready tasks, and the pool of that lane has no open slot afterwards, or is unlimited.
CREATE TYPE sm.surveyed AS (
    lane_digest UUID, lane_no BIGINT, lane_pool TEXT, lane_slots BIGINT, lane_limits TEXT, lane_queue TEXT,
    lane_ready BIGINT, bound BIGINT[], lane_early BIGINT[], most BIGINT, ranks BIGINT[], dates BIGINT[],
    indices BIGINT[], numbers BIGINT[], instants BIGINT[], pool_name TEXT, pool_slots BIGINT, pool_used BIGINT,
    pool_keeps BIGINT, pool_description TEXT, was_granted BIGINT[], has_more BOOLEAN, told TEXT[], next_due BIGINT,
    is_fed BOOLEAN, frees_nothing BOOLEAN
);

-- A whole tick, for the case without decisions: a few deltas; one lane with ready tasks, without limits, in a
-- defined pool; nothing paused, overdue, early or keeping slots. Every plan is then the same: the first tasks of
-- that lane, up to `wanted` and the open slots. It takes the tick lock, folds, counts these tasks as granted,
-- records the tick, and moves them as grant.sql does.
-- It fails (22012) in any other case, if the tick was made before, if its holder must report what it serves, and
-- if another transaction has one of the tasks locked or has changed it, because the commit is sent along.
-- Returns a row with what it read, and then one for each task that it granted, in the columns that every statement
-- returns tasks in, but for what the lane needs, which the first row has. They are no composite: to take a column
-- from one, the server walks those before it.
-- lasts: the length of the holder's leases. wanted: the most tasks to grant. After a grant it deletes ticks
-- from before an instant, earliest first and at most at_most. starts: 1 to start the tasks. The parameters from
-- end_nos on are the attempts that it ends first, all of them as end.sql does.
CREATE FUNCTION sm._tick_ahead(tick_id TEXT, replaced TEXT, of_holder TEXT, lasts BIGINT, wanted BIGINT, now BIGINT,
  before BIGINT, at_most BIGINT, expires BIGINT, starts BIGINT, end_nos BIGINT[], end_epochs BIGINT[],
  end_states BIGINT[], ended BIGINT[], messages TEXT[], results TEXT[])
RETURNS TABLE (
    survey sm.surveyed,
    no BIGINT, namespace TEXT, workflow TEXT, run TEXT, task TEXT, map_index BIGINT, lane UUID, rank BIGINT,
    logical_date BIGINT, priority BIGINT, state BIGINT, due BIGINT, epoch BIGINT, held BIGINT, expires_at BIGINT,
    attempt BIGINT, forgiven BIGINT, lease_loss BIGINT, attempt_runs BIGINT, enqueued_at BIGINT, queued_at BIGINT,
    first_started_at BIGINT, started_at BIGINT, ended_at BIGINT, holder TEXT, retry TEXT, message TEXT, value TEXT,
    payload TEXT, ready_at BIGINT, lost BIGINT, finished BIGINT, cancel_at BIGINT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  own sm.delta;
  folded RECORD;
  use RECORD;
  lane_at TID;
  lane_tasks BIGINT;
  pool_at TID;
  has_old BOOLEAN;
  place BIGINT[];
  places TID[];
  new_epochs BIGINT[];
  count BIGINT;
  granted BIGINT;
BEGIN
  -- As at the beginning of a tick in parts: the client may stop before it commits, and the commit is flushed apart.
  SET LOCAL synchronous_commit = off;
  IF NOT current_setting('idle_in_transaction_session_timeout')::interval
    BETWEEN interval '1 ms' AND interval '4 s' THEN
    SET LOCAL idle_in_transaction_session_timeout = 4000;
  END IF;
  -- Before the lock, because an end may wait for a row.
  IF cardinality(end_nos) = 1 THEN
    use := sm._end_one(end_nos[1], end_epochs[1], end_states[1], ended[1], messages[1], results[1], 1, true);
    survey.is_fed := use.is_fed;
    own := use.left_delta;
  ELSIF cardinality(end_nos) > 1 THEN
    SELECT bool_or(is_fed) INTO survey.is_fed
    FROM sm._end_many(end_nos, end_epochs, end_states, ended, messages, results, cardinality(end_nos));
  END IF;
  LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE;
  SET LOCAL lock_timeout = 250;
  SELECT ARRAY(
      SELECT json_build_array(holder, queues, announced_at, lease)::text FROM sm.serving
      -- As numeric, because a lease may be long enough to overflow a bigint.
      WHERE holder = of_holder AND queues = 'null' AND now < announced_at::numeric + lease
        AND announced_at::numeric + 2 * lease::numeric <= now + 2 * lasts::numeric),
    EXISTS (SELECT FROM sm.request WHERE id = tick_id) OR EXISTS (SELECT FROM sm.family)
      OR EXISTS (SELECT FROM sm.pause) OR (SELECT no FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL
        ORDER BY lane, rank, logical_date, map_index, no LIMIT 1) IS NOT NULL,
    EXISTS (SELECT FROM sm.request WHERE at < before)
  INTO survey.told, survey.has_more, has_old;
  IF survey.told = '{}' OR survey.has_more THEN
    RAISE division_by_zero;
  END IF;
  folded := sm._fold_few(true, own);
  IF folded.count IS NULL OR folded.damage <> '{}' OR NOT folded.is_sure OR folded.next_due <= now THEN
    RAISE division_by_zero;
  END IF;
  survey.next_due := folded.next_due;
  IF folded.left_ready > 0 THEN
    survey.lane_digest := folded.left_lane;
    survey.lane_no := (folded.left_needs).no;
    survey.lane_pool := (folded.left_needs).pool;
    survey.lane_slots := (folded.left_needs).slots;
    survey.lane_limits := (folded.left_needs).limits;
    survey.lane_queue := (folded.left_needs).queue;
    survey.lane_ready := folded.left_ready;
    lane_tasks := folded.left_tasks;
    survey.bound := folded.left_bound;
    survey.lane_early := folded.left_early;
  ELSIF folded.left_lane IS NOT NULL THEN
    INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
    VALUES (folded.left_lane, nextval('sm.version'), folded.left_ready, folded.left_tasks, folded.left_bound[1],
      folded.left_bound[2], folded.left_bound[3], folded.left_bound[4], folded.left_early);
    IF folded.left_used > 0 THEN
      INSERT INTO sm.pool_use (name, version, used)
      VALUES ((folded.left_needs).pool, nextval('sm.version'), folded.left_used);
    END IF;
    folded.left_used := NULL;
  END IF;
  -- The lane that the fold returned has no counter with ready tasks at this point. It is not looked for, because
  -- without a newest version all dead ones would be walked.
  IF EXISTS (SELECT FROM sm.lane WHERE digest IS DISTINCT FROM folded.left_lane) THEN
    FOR use IN
      SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, was.at, was.ready, was.tasks,
        ARRAY[was.rank, was.logical_date, was.map_index, was.no] AS bound, was.early
      FROM (SELECT * FROM sm.lane WHERE digest IS DISTINCT FROM folded.left_lane OFFSET 0) lane CROSS JOIN LATERAL (
        SELECT ctid AS at, * FROM sm.lane_use WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
      WHERE was.ready > 0 LIMIT 2
    LOOP
      IF survey.lane_digest IS NOT NULL THEN
        RAISE division_by_zero;
      END IF;
      survey.lane_digest := use.digest;
      survey.lane_no := use.no;
      survey.lane_pool := use.pool;
      survey.lane_slots := use.slots;
      survey.lane_limits := use.limits;
      survey.lane_queue := use.queue;
      lane_at := use.at;
      survey.lane_ready := use.ready;
      lane_tasks := use.tasks;
      survey.bound := use.bound;
      survey.lane_early := use.early;
    END LOOP;
  END IF;
  IF survey.lane_limits <> '[]' OR survey.lane_early <> '{}' THEN
    RAISE division_by_zero;
  END IF;
  IF survey.lane_digest IS NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;
  -- A pool counter that the fold returned is that of this pool. It has no newest version either.
  SELECT pool.name, pool.slots, coalesce(folded.left_used, was.used, 0), pool.keeps_slots, pool.description, was.at
  INTO survey.pool_name, survey.pool_slots, survey.pool_used, survey.pool_keeps, survey.pool_description, pool_at
  FROM sm.pool LEFT JOIN LATERAL (
    SELECT ctid AS at, used FROM sm.pool_use WHERE pool_use.name = pool.name AND folded.left_used IS NULL
    ORDER BY version DESC LIMIT 1) was ON true
  WHERE pool.name = survey.lane_pool;
  IF NOT FOUND THEN
    RAISE division_by_zero;
  END IF;
  survey.most := greatest(0, least(wanted, (survey.pool_slots - survey.pool_used) / survey.lane_slots));
  SELECT array_agg(rank), array_agg(logical_date), array_agg(map_index), array_agg(no), array_agg(ready_at),
    array_agg(epoch + 1), array_agg(at)
  INTO survey.ranks, survey.dates, survey.indices, survey.numbers, survey.instants, new_epochs, places
  FROM (
    SELECT rank, logical_date, map_index, no, ready_at, epoch, ctid AS at FROM sm.ready
    WHERE ready.lane = survey.lane_digest AND (rank, logical_date, map_index, no)
      >= (survey.bound[1], survey.bound[2], survey.bound[3], survey.bound[4])
    -- Tasks committed since the fold are not counted yet, so they are not planned with.
    ORDER BY rank, logical_date, map_index, no LIMIT least(survey.most, survey.lane_ready)) page;
  count := coalesce(cardinality(survey.numbers), 0);
  survey.frees_nothing := lane_at IS NULL
    AND (survey.pool_used + count * survey.lane_slots < survey.pool_slots) IS NOT TRUE;
  RETURN NEXT;
  place := survey.bound;
  IF count > 0 THEN
    place := ARRAY[survey.ranks[count], survey.dates[count], survey.indices[count], survey.numbers[count] + 1];
  END IF;
  IF count > 0 OR lane_at IS NULL THEN
    IF lane_at IS NOT NULL THEN
      DELETE FROM sm.lane_use WHERE ctid = lane_at;
    END IF;
    INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
    VALUES (survey.lane_digest, nextval('sm.version'), survey.lane_ready - count, lane_tasks,
      place[1], place[2], place[3], place[4], '{}');
  END IF;
  IF count > 0 OR lane_at IS NULL AND folded.left_used > 0 THEN
    IF pool_at IS NOT NULL THEN
      DELETE FROM sm.pool_use WHERE ctid = pool_at;
    END IF;
    INSERT INTO sm.pool_use (name, version, used)
    VALUES (survey.pool_name, nextval('sm.version'), survey.pool_used + count * survey.lane_slots);
  END IF;
  IF count = 0 THEN
    RETURN;
  END IF;
  UPDATE sm.request SET id = tick_id, at = now, nos = survey.numbers, epochs = new_epochs WHERE id = replaced;
  IF NOT FOUND THEN
    INSERT INTO sm.request (id, at, nos, epochs) VALUES (tick_id, now, survey.numbers, new_epochs);
  END IF;
  IF has_old THEN
    DELETE FROM sm.request WHERE id = ANY (ARRAY(
      SELECT id FROM sm.request WHERE at < before ORDER BY at, id LIMIT at_most));
  END IF;
  -- Meanwhile another transaction may have changed or locked one of the tasks. Then it is not found here. A row of
  -- this table is never updated, and none takes the place of a deleted one while this function runs.
  RETURN QUERY WITH
  held AS MATERIALIZED (SELECT ctid AS at FROM sm.ready WHERE ctid = ANY (places) FOR UPDATE SKIP LOCKED),
  gone AS (DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM held)) RETURNING ready.*),
  taken AS MATERIALIZED (
    SELECT gone.no, gone.lane, gone.rank, gone.logical_date, gone.epoch + 1 AS epoch,
      least(gone.attempt + 1, 4294967295) AS attempt, gone.forgiven, gone.lost, gone.ready_at, gone.first_started_at,
      gone.started_at, gone.ended_at, gone.finished, gone.message, gone.value, task.namespace, task.workflow, task.run,
      task.task, task.map_index, task.priority, task.slots, task.lease_loss, task.attempt_runs, task.enqueued_at,
      task.retry, task.payload,
      CASE WHEN task.attempt_runs & 1 = 0 THEN starts ELSE 0 END AS started,
      greatest(now, task.enqueued_at, gone.ready_at, gone.queued_at, gone.started_at, gone.ended_at) AS at
    FROM gone CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = gone.no OFFSET 0) task
  ),
  new_leases AS (
    INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, started, started_at,
      first_started_at, ended_at, forgiven, lost, finished, runs, holder, message, value)
    SELECT no, epoch, lane, slots, expires, at, attempt, ready_at, started,
      CASE started WHEN 1 THEN at ELSE started_at END, coalesce(first_started_at, CASE started WHEN 1 THEN at END),
      ended_at, forgiven, lost, finished, nullif(attempt_runs, 0), of_holder, message, value
    FROM taken
  )
  SELECT NULL::sm.surveyed, no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority,
    1 + started, NULL::bigint, epoch, slots, expires, attempt, coalesce(forgiven, 0), lease_loss, attempt_runs,
    enqueued_at, at,
    coalesce(first_started_at, CASE started WHEN 1 THEN at END), CASE started WHEN 1 THEN at ELSE started_at END,
    ended_at, of_holder, retry, message, value, payload, ready_at, coalesce(lost, 0), finished, NULL::bigint
  FROM taken;
  GET DIAGNOSTICS granted = ROW_COUNT;
  IF granted < count THEN
    RAISE division_by_zero;
  END IF;
END $$;
