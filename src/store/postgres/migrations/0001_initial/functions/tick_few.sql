-- Does everything of a tick except moving its tasks, for the case without decisions: a few deltas; one lane
-- with ready tasks, without limits, in a defined pool; nothing paused, overdue, early or keeping slots. Every
-- plan is then the same: the first tasks of that lane, up to `wanted` and the open slots. It folds, counts
-- these tasks as granted, and records them under the tick's name. grant_noted moves them from there.
-- It fails (22012) in any other case, if the tick was made before, and if its holder must report what it
-- serves, because the commit is sent along.
-- Returns what survey_few returns, as of before the grant, and the next instant that a task waits for.
-- lasts: the length of the holder's leases. wanted: the most tasks to grant. After a grant it deletes ticks
-- from before an instant, earliest first and at most at_most.
CREATE FUNCTION sm._tick_few(tick_id TEXT, replaced TEXT, of_holder TEXT, lasts BIGINT, wanted BIGINT, now BIGINT,
  before BIGINT, at_most BIGINT)
RETURNS TABLE (lane_digest UUID, lane_no BIGINT, lane_pool TEXT, lane_slots BIGINT, lane_limits TEXT, lane_queue TEXT,
  lane_ready BIGINT, bound BIGINT[], lane_early BIGINT[], most BIGINT, ranks BIGINT[], dates BIGINT[], indices BIGINT[],
  numbers BIGINT[], instants BIGINT[], pool_name TEXT, pool_slots BIGINT, pool_used BIGINT, pool_keeps BIGINT,
  pool_description TEXT, was_granted BIGINT[], has_more BOOLEAN, told TEXT[], next_due BIGINT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  folded RECORD;
  use RECORD;
  lane_at TID;
  lane_tasks BIGINT;
  pool_at TID;
  new_epochs BIGINT[];
  granted BIGINT;
BEGIN
  told := ARRAY(
    SELECT json_build_array(holder, queues, announced_at, lease)::text FROM sm.serving
    -- As numeric, because a lease may be long enough to overflow a bigint.
    WHERE holder = of_holder AND queues = 'null' AND now < announced_at::numeric + lease
      AND announced_at::numeric + 2 * lease::numeric <= now + 2 * lasts::numeric);
  has_more := told = '{}' OR EXISTS (SELECT FROM sm.request WHERE id = tick_id)
    OR EXISTS (SELECT FROM sm.family) OR EXISTS (SELECT FROM sm.pause)
    OR (SELECT no FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL
      ORDER BY lane, rank, logical_date, map_index, no LIMIT 1) IS NOT NULL;
  IF has_more THEN
    RAISE division_by_zero;
  END IF;
  SELECT * INTO folded FROM sm._fold_few(true);
  IF NOT FOUND OR folded.damage <> '{}' OR NOT folded.is_sure OR folded.next_due <= now THEN
    RAISE division_by_zero;
  END IF;
  next_due := folded.next_due;
  IF folded.left_ready > 0 THEN
    SELECT digest, no, pool, slots, limits, queue INTO lane_digest, lane_no, lane_pool, lane_slots, lane_limits, lane_queue
    FROM sm.lane WHERE digest = folded.left_lane;
    lane_ready := folded.left_ready;
    lane_tasks := folded.left_tasks;
    bound := folded.left_bound;
    lane_early := folded.left_early;
  ELSIF folded.left_lane IS NOT NULL THEN
    INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
    VALUES (folded.left_lane, nextval('sm.version'), folded.left_ready, folded.left_tasks, folded.left_bound[1],
      folded.left_bound[2], folded.left_bound[3], folded.left_bound[4], folded.left_early);
    INSERT INTO sm.pool_use (name, version, used)
    SELECT pool, nextval('sm.version'), folded.left_used FROM sm.lane
    WHERE digest = folded.left_lane AND folded.left_used > 0;
    folded.left_used := NULL;
  END IF;
  -- The lane that the fold returned has no counter with ready tasks at this point. It is not looked for, because
  -- without a newest version all dead ones would be walked.
  FOR use IN
    SELECT lane.digest, lane.no, lane.pool, lane.slots, lane.limits, lane.queue, was.at, was.ready, was.tasks,
      ARRAY[was.rank, was.logical_date, was.map_index, was.no] AS bound, was.early
    FROM (SELECT * FROM sm.lane WHERE digest IS DISTINCT FROM folded.left_lane OFFSET 0) lane CROSS JOIN LATERAL (
      SELECT ctid AS at, * FROM sm.lane_use WHERE lane_use.digest = lane.digest ORDER BY version DESC LIMIT 1) was
    WHERE was.ready > 0 LIMIT 2
  LOOP
    IF lane_digest IS NOT NULL THEN
      RAISE division_by_zero;
    END IF;
    lane_digest := use.digest;
    lane_no := use.no;
    lane_pool := use.pool;
    lane_slots := use.slots;
    lane_limits := use.limits;
    lane_queue := use.queue;
    lane_at := use.at;
    lane_ready := use.ready;
    lane_tasks := use.tasks;
    bound := use.bound;
    lane_early := use.early;
  END LOOP;
  IF lane_limits <> '[]' OR lane_early <> '{}' THEN
    RAISE division_by_zero;
  END IF;
  IF lane_digest IS NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;
  -- A pool counter that the fold returned is that of this pool. It has no newest version either.
  SELECT pool.name, pool.slots, coalesce(folded.left_used, was.used, 0), pool.keeps_slots, pool.description, was.at
  INTO pool_name, pool_slots, pool_used, pool_keeps, pool_description, pool_at
  FROM sm.pool LEFT JOIN LATERAL (
    SELECT ctid AS at, used FROM sm.pool_use WHERE pool_use.name = pool.name AND folded.left_used IS NULL
    ORDER BY version DESC LIMIT 1) was ON true
  WHERE pool.name = lane_pool;
  IF NOT FOUND THEN
    RAISE division_by_zero;
  END IF;
  most := greatest(0, least(wanted, (pool_slots - pool_used) / lane_slots));
  SELECT array_agg(rank), array_agg(logical_date), array_agg(map_index), array_agg(no), array_agg(ready_at),
    array_agg(epoch + 1)
  INTO ranks, dates, indices, numbers, instants, new_epochs
  FROM (
    SELECT rank, logical_date, map_index, no, ready_at, epoch FROM sm.ready
    WHERE ready.lane = lane_digest AND (rank, logical_date, map_index, no) >= (bound[1], bound[2], bound[3], bound[4])
    -- Tasks committed since the fold are not counted yet, so they are not planned with.
    ORDER BY rank, logical_date, map_index, no LIMIT least(most, lane_ready)) page;
  RETURN NEXT;
  granted := coalesce(cardinality(numbers), 0);
  IF granted > 0 THEN
    bound := ARRAY[ranks[granted], dates[granted], indices[granted], numbers[granted] + 1];
  END IF;
  IF granted > 0 OR lane_at IS NULL THEN
    DELETE FROM sm.lane_use WHERE ctid = lane_at;
    INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
    VALUES (lane_digest, nextval('sm.version'), lane_ready - granted, lane_tasks, bound[1], bound[2], bound[3], bound[4], '{}');
  END IF;
  pool_used := pool_used + granted * lane_slots;
  IF granted > 0 OR lane_at IS NULL AND folded.left_used > 0 THEN
    DELETE FROM sm.pool_use WHERE ctid = pool_at;
    INSERT INTO sm.pool_use (name, version, used) VALUES (pool_name, nextval('sm.version'), pool_used);
  END IF;
  IF granted = 0 THEN
    RETURN;
  END IF;
  DELETE FROM sm.request WHERE id = replaced;
  INSERT INTO sm.request (id, at, nos, epochs) VALUES (tick_id, now, numbers, new_epochs);
  -- Until the tasks are moved, another transaction may change one of them, and so its lane.
  PERFORM set_config('stationmaster.lane', lane_digest::text, true);
  IF EXISTS (SELECT FROM sm.request WHERE at < before) THEN
    DELETE FROM sm.request WHERE id = ANY (ARRAY(
      SELECT id FROM sm.request WHERE at < before ORDER BY at, id LIMIT at_most));
  END IF;
END $$;
