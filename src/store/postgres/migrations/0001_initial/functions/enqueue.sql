-- Returns the limit keys of a JSON array as the store writes them: sorted and without duplicates. NULL if it is
-- not an array of at most 16 names.
CREATE FUNCTION sm._limits(given TEXT) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF given = '[]' THEN
    RETURN given;
  END IF;
  RETURN (
    SELECT CASE
      WHEN bool_and(is_name) IS NOT FALSE AND count(*) <= 16
      THEN '[' || coalesce(string_agg(to_json(key)::text, ',' ORDER BY key), '') || ']'
    END
    FROM (
      SELECT (value #>> '{}') COLLATE "C" AS key,
        bool_and(json_typeof(value) = 'string' AND octet_length(value #>> '{}') BETWEEN 1 AND 512) AS is_name
      FROM json_array_elements(given::json)
      GROUP BY 1
    ) keys
  );
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END $$;

-- Whether a text is a retry policy as the crate reads it.
CREATE FUNCTION sm._is_policy(given TEXT) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT count(*) = count(DISTINCT key) AND count(*) FILTER (WHERE key = 'delay_s') = 1
      AND bool_and(CASE key
        WHEN 'delay_s' THEN number BETWEEN 0 AND 9007199254740992
        WHEN 'budget_s' THEN number BETWEEN 0 AND 9007199254740992
        WHEN 'cap_s' THEN number BETWEEN 1e-6 AND 9007199254740992
        WHEN 'max_delay_s' THEN number BETWEEN 1e-6 AND 9007199254740992
        WHEN 'multiplier' THEN number BETWEEN 1 AND 1e15
        WHEN 'max_attempts' THEN written ~ '^[0-9]+$' AND number BETWEEN 1 AND 4294967295
        WHEN 'jitter' THEN word IN ('none', 'full', 'equal', 'decorrelated', 'hashed')
        WHEN 'airflow' THEN word IN ('2.5', '2.6', '2.10', '3.2')
      END IS TRUE)
      AND (bool_or(key = 'jitter' AND word = 'decorrelated')
        AND bool_or(key = 'multiplier' AND number > 1) IS NOT TRUE) IS NOT TRUE
      AND (bool_or(key = 'airflow') AND bool_or(key = 'jitter')) IS NOT TRUE
      AND (bool_or(key = 'airflow' AND word <> '3.2')
        AND bool_or(key = 'multiplier' AND number NOT IN (1, 2))) IS NOT TRUE
    FROM (
      SELECT key, value::text AS written,
        CASE json_typeof(value) WHEN 'number' THEN value::text::numeric END AS number,
        CASE json_typeof(value) WHEN 'string' THEN value #>> '{}' END AS word
      FROM json_each(given::json)
    ) part
  );
EXCEPTION WHEN data_exception THEN
  RETURN FALSE;
END $$;

-- Enqueues tasks, one array per column. Returns for each its place, counted from 1, its number, and whether it
-- is new.
CREATE FUNCTION sm._enqueue_all(
  at BIGINT, namespaces TEXT[], workflows TEXT[], runs TEXT[], tasks TEXT[], map_indices BIGINT[], pools TEXT[],
  slots BIGINT[], limits TEXT[], priorities BIGINT[], ranks BIGINT[], logical_dates BIGINT[],
  not_befores BIGINT[], retries TEXT[], losses BIGINT[], payloads TEXT[], queues TEXT[]
) RETURNS TABLE (place BIGINT, id BIGINT, is_new BOOLEAN)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  wanted CONSTANT INT := cardinality(namespaces);
  sorted TEXT[] := ARRAY(SELECT sm._limits(given) FROM unnest(_enqueue_all.limits) given);
  -- The place of the first task in the call with the same key.
  firsts BIGINT[] := ARRAY(
    SELECT min(place) OVER (PARTITION BY namespace, workflow, run, task, map_index)
    FROM unnest(namespaces, workflows, runs, tasks, map_indices)
      WITH ORDINALITY given (namespace, workflow, run, task, map_index, place)
    ORDER BY place
  );
  refusal TEXT;
  asked RECORD;
  beyond RECORD;
  answer RECORD;
  ids BIGINT[] := array_fill(NULL::bigint, ARRAY[wanted]);
  news BOOLEAN[] := array_fill(FALSE, ARRAY[wanted]);
  missing INT;
BEGIN
  IF wanted = 0 THEN
    RETURN;
  END IF;
  SELECT reason INTO refusal
  FROM (
    SELECT place, CASE
        WHEN (octet_length(namespace) BETWEEN 1 AND 512 AND octet_length(workflow) BETWEEN 1 AND 512
          AND octet_length(run) BETWEEN 1 AND 512 AND octet_length(task) BETWEEN 1 AND 512
          AND octet_length(pool) BETWEEN 1 AND 512
          AND octet_length(coalesce(queue, 'default')) BETWEEN 1 AND 512) IS NOT TRUE
        THEN 'a name is refused: use text of 1 to 512 bytes'
        WHEN limits IS NULL THEN 'limits is refused: use a JSON array of at most 16 names'
        WHEN (sm._is_instant(at) AND coalesce(map_index, 0) BETWEEN 0 AND 4294967295
          AND slots BETWEEN 1 AND 2147483647 AND priority BETWEEN -2147483648 AND 2147483647
          AND sm._is_instant(coalesce(logical_date, 0)) AND sm._is_instant(coalesce(not_before, 0))
          AND coalesce(losses, 0) BETWEEN 0 AND 4294967295) IS NOT TRUE
        THEN 'a number is refused: see the ranges in docs/sql.md'
        WHEN (octet_length(payload) <= 1048576) IS NOT TRUE
        THEN 'payload is refused: use text of at most 1048576 bytes'
        WHEN retry IS NOT NULL AND sm._is_policy(retry) IS NOT TRUE
        THEN 'retry is refused: use NULL, or the JSON that the crate writes for a policy'
      END AS reason
    FROM unnest(
      namespaces, workflows, runs, tasks, map_indices, pools, _enqueue_all.slots, sorted, priorities,
      logical_dates, not_befores, retries, _enqueue_all.losses, payloads, queues
    ) WITH ORDINALITY given (
      namespace, workflow, run, task, map_index, pool, slots, limits, priority, logical_date, not_before, retry,
      losses, payload, queue, place
    )
  ) checked
  WHERE reason IS NOT NULL
  ORDER BY place
  LIMIT 1;
  IF refusal IS NOT NULL THEN
    RAISE EXCEPTION 'stationmaster: %', refusal USING ERRCODE = 'SM003';
  END IF;

  -- All arrays but those of lanes have the same rows in the same order, that of the keys. Each task has a shape of
  -- its own.
  SELECT array_agg(place) AS places, array_agg(lane_at) AS lanes, array_agg(due) AS dues, array_agg(rank) AS ranks,
    array_agg(logical_date) AS logical_dates, array_agg(map_index) AS map_indices,
    array_agg(priority) AS priorities, array_agg(losses) AS losses, array_agg(0::bigint) AS attempt_runs,
    array_agg(at) AS enqueued_at, array_agg(namespace) AS namespaces, array_agg(workflow) AS workflows,
    array_agg(run) AS runs, array_agg(task) AS tasks, array_agg(retry) AS retries, array_agg(payload) AS payloads,
    array_agg(nth) AS nths, array_agg(nth_key) AS shapes,
    array_agg(pool ORDER BY lane_at) FILTER (WHERE lane_first) AS lane_pools,
    array_agg(slots ORDER BY lane_at) FILTER (WHERE lane_first) AS lane_slots,
    array_agg(limits ORDER BY lane_at) FILTER (WHERE lane_first) AS lane_limits,
    array_agg(queue ORDER BY lane_at) FILTER (WHERE lane_first) AS lane_queues
  INTO asked
  FROM (
    SELECT place, namespace, workflow, run, task, coalesce(map_index, -1) AS map_index, pool, slots, limits,
      priority, coalesce(rank, -priority) AS rank, coalesce(logical_date, at) AS logical_date,
      CASE WHEN not_before > at THEN not_before END AS due, retry, nullif(coalesce(losses, 3), 0) AS losses,
      sm._escaped(payload) AS payload, nullif(queue, 'default') AS queue,
      row_number() OVER (ORDER BY place) AS nth,
      row_number() OVER (ORDER BY namespace COLLATE "C", workflow COLLATE "C", run COLLATE "C", task COLLATE "C",
        coalesce(map_index, -1)) AS nth_key,
      dense_rank() OVER (ORDER BY pool COLLATE "C", slots, limits COLLATE "C", coalesce(queue, 'default') COLLATE "C")
        AS lane_at,
      row_number() OVER (
        PARTITION BY pool COLLATE "C", slots, limits COLLATE "C", coalesce(queue, 'default') COLLATE "C") = 1 AS lane_first
    FROM unnest(
      namespaces, workflows, runs, tasks, map_indices, pools, _enqueue_all.slots, sorted, priorities,
      _enqueue_all.ranks, logical_dates, not_befores, retries, _enqueue_all.losses, payloads, queues
    ) WITH ORDINALITY given (
      namespace, workflow, run, task, map_index, pool, slots, limits, priority, rank, logical_date, not_before,
      retry, losses, payload, queue, place
    )
    WHERE firsts[place] = place
    ORDER BY nth_key
  ) given;

  IF EXISTS (SELECT FROM sm.cap) THEN
    -- Under a strict cap callers take turns, in the order of these names. Each statement sees what the previous
    -- callers committed.
    INSERT INTO sm.turn AS turn (name, at)
    SELECT turns.name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM (
      SELECT 'cap ' || kind || ' ' || name AS name FROM sm._caps(asked.lane_queues, asked.lane_limits) WHERE strict = 1
    ) turns
    ORDER BY turns.name COLLATE "C"
    ON CONFLICT (name) DO UPDATE SET at = greatest(turn.at, excluded.at);
    -- The first task that a cap refuses if all before it are accepted. Existing tasks are neither counted nor
    -- refused.
    SELECT * INTO beyond
    FROM (
      SELECT task.place, cap.kind, cap.name, cap.most,
        cap.waiting + row_number() OVER (PARTITION BY cap.kind, cap.name ORDER BY task.place) - 1 AS waiting
      FROM (
        SELECT given.place, asked.lane_queues[given.lane] AS queue, asked.lane_limits[given.lane] AS limits
        FROM unnest(
          asked.lanes, asked.namespaces, asked.workflows, asked.runs, asked.tasks, asked.map_indices, asked.nths
        ) given (lane, namespace, workflow, run, task, map_index, place)
        WHERE NOT EXISTS (
          SELECT FROM sm.task
          WHERE task.namespace = given.namespace AND task.workflow = given.workflow AND task.run = given.run
            AND task.task = given.task AND task.map_index = given.map_index OFFSET 0)
      ) task
      CROSS JOIN LATERAL (
        SELECT 0::bigint AS kind, coalesce(task.queue, 'default') AS name
        UNION ALL
        SELECT 2, carried.key FROM sm._carried(task.limits) carried
      ) subject
      JOIN sm._caps(asked.lane_queues, asked.lane_limits) cap
        ON cap.kind = subject.kind AND cap.name = subject.name COLLATE "C"
    ) task
    WHERE waiting >= most
    ORDER BY place, kind, name COLLATE "C"
    LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'stationmaster: too many tasks wait: % of at most % in % %', beyond.waiting, beyond.most,
        CASE beyond.kind WHEN 0 THEN 'queue' ELSE 'limit' END, beyond.name
      USING ERRCODE = 'SM007';
    END IF;
  END IF;

  -- One retry finds tasks that were committed meanwhile. Another is needed if such a task was deleted before
  -- the retry.
  missing := cardinality(asked.places);
  FOR look IN 1 .. 8 LOOP
    FOR answer IN
      SELECT * FROM sm._enqueue(
        asked.shapes, asked.map_indices, asked.nths, NULL, asked.runs, asked.tasks, asked.payloads, asked.lanes,
        asked.dues, asked.ranks, asked.logical_dates, asked.priorities, asked.losses, asked.attempt_runs,
        asked.enqueued_at, asked.namespaces, asked.workflows, asked.retries, asked.lane_pools, asked.lane_slots,
        asked.lane_limits, asked.lane_queues, 0
      )
    LOOP
      IF ids[asked.places[answer.place]] IS NULL THEN
        ids[asked.places[answer.place]] := answer.no;
        news[asked.places[answer.place]] := answer.is_new;
        missing := missing - 1;
      END IF;
    END LOOP;
    EXIT WHEN missing = 0;
  END LOOP;
  IF missing > 0 THEN
    RAISE EXCEPTION 'stationmaster: a task was inserted and deleted by others, again and again: call again'
    USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN QUERY
  SELECT given.place, ids[firsts[given.place]], news[firsts[given.place]] AND firsts[given.place] = given.place
  FROM generate_series(1::bigint, wanted) given (place);
END $$;

CREATE FUNCTION sm.enqueue(
  at BIGINT, namespace TEXT, workflow TEXT, run TEXT, task TEXT, map_index BIGINT DEFAULT NULL,
  pool TEXT DEFAULT 'default_pool', slots BIGINT DEFAULT 1, limits TEXT DEFAULT '[]', priority BIGINT DEFAULT 0,
  rank BIGINT DEFAULT NULL, logical_date BIGINT DEFAULT NULL, not_before BIGINT DEFAULT NULL,
  retry TEXT DEFAULT NULL, lease_losses BIGINT DEFAULT NULL, payload TEXT DEFAULT '', queue TEXT DEFAULT NULL
) RETURNS TABLE (id BIGINT, is_new BOOLEAN)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
  SELECT done.id, done.is_new
  FROM sm._enqueue_all(
    at, ARRAY[namespace], ARRAY[workflow], ARRAY[run], ARRAY[task], ARRAY[map_index], ARRAY[pool], ARRAY[slots],
    ARRAY[limits], ARRAY[priority], ARRAY[rank], ARRAY[logical_date], ARRAY[not_before], ARRAY[retry],
    ARRAY[lease_losses], ARRAY[payload], ARRAY[queue]
  ) done;
END $$;

-- tasks: a JSON array of objects with the arguments of `enqueue`.
CREATE FUNCTION sm.enqueue_many(at BIGINT, tasks TEXT)
RETURNS TABLE (place BIGINT, id BIGINT, is_new BOOLEAN)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  list JSON;
  given RECORD;
  refusal TEXT;
BEGIN
  BEGIN
    list := tasks;
    SELECT format('a task has no column %I', key) INTO refusal
    FROM json_array_elements(list) task CROSS JOIN LATERAL json_object_keys(task) key
    WHERE key NOT IN (
      'namespace', 'workflow', 'run', 'task', 'map_index', 'pool', 'slots', 'limits', 'priority', 'rank',
      'logical_date', 'not_before', 'retry', 'lease_losses', 'payload', 'queue')
    LIMIT 1;
    SELECT array_agg(namespace) AS namespaces, array_agg(workflow) AS workflows, array_agg(run) AS runs,
      array_agg(task) AS tasks, array_agg(map_index) AS map_indices,
      array_agg(coalesce(pool, 'default_pool')) AS pools, array_agg(coalesce(slots, 1)) AS slots,
      array_agg(coalesce(limits::text, '[]')) AS limits, array_agg(coalesce(priority, 0)) AS priorities,
      array_agg(rank) AS ranks, array_agg(logical_date) AS logical_dates, array_agg(not_before) AS not_befores,
      array_agg(retry::text) AS retries, array_agg(lease_losses) AS losses,
      array_agg(coalesce(payload, '')) AS payloads, array_agg(queue) AS queues
    INTO given
    FROM json_to_recordset(list) given (
      namespace TEXT, workflow TEXT, run TEXT, task TEXT, map_index BIGINT, pool TEXT, slots BIGINT, limits JSON,
      priority BIGINT, rank BIGINT, logical_date BIGINT, not_before BIGINT, retry JSON, lease_losses BIGINT,
      payload TEXT, queue TEXT
    );
  EXCEPTION WHEN data_exception THEN
    refusal := SQLERRM;
  END;
  IF refusal IS NOT NULL OR list IS NULL THEN
    RAISE EXCEPTION 'stationmaster: tasks is refused: use a JSON array of objects'
    USING ERRCODE = 'SM003', DETAIL = coalesce(refusal, 'it is NULL');
  END IF;
  RETURN QUERY
  SELECT * FROM sm._enqueue_all(
    at, coalesce(given.namespaces, '{}'), given.workflows, given.runs, given.tasks, given.map_indices,
    given.pools, given.slots, given.limits, given.priorities, given.ranks, given.logical_dates,
    given.not_befores, given.retries, given.losses, given.payloads, given.queues
  );
END $$;
