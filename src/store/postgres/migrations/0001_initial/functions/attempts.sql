-- Starts attempts. An attempt that was already started under its lease is left unchanged.
CREATE FUNCTION sm.start_many(at BIGINT, ids BIGINT[], epochs BIGINT[]) RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  stale TEXT[];
  is_recorded BOOLEAN;
BEGIN
  IF cardinality(ids) IS DISTINCT FROM cardinality(epochs) OR cardinality(ids) IS NULL THEN
    RAISE EXCEPTION 'stationmaster: leases are refused: use two arrays of one length' USING ERRCODE = 'SM003';
  END IF;
  IF sm._is_instant(at) IS NOT TRUE THEN
    RAISE EXCEPTION 'stationmaster: an instant is refused: use microseconds since 1970' USING ERRCODE = 'SM003';
  END IF;
  PERFORM sm._start(ids, epochs, at);
  SELECT array_agg(format('task %s, epoch %s', given.no, given.epoch)) FILTER (WHERE lease.no IS NULL),
    bool_or(lease.attempt_runs & 1 <> 0)
  INTO stale, is_recorded
  FROM unnest(ids, epochs) given (no, epoch)
  LEFT JOIN LATERAL (
    SELECT lease.no, (SELECT attempt_runs FROM sm.task WHERE task.no = lease.no) AS attempt_runs
    FROM sm.lease
    WHERE lease.no = given.no AND lease.epoch = given.epoch AND lease.started = 1
    OFFSET 0
  ) lease ON true;
  IF stale IS NOT NULL THEN
    RAISE EXCEPTION 'stationmaster: stale lease: roll back, and stop the work'
    USING ERRCODE = 'SM001', DETAIL = array_to_string(stale[:100], '; ');
  END IF;
  IF is_recorded THEN
    RAISE EXCEPTION
      'stationmaster: the attempts of this task are recorded as runs: start it through the crate'
    USING ERRCODE = 'SM004';
  END IF;
END $$;

CREATE FUNCTION sm.start(at BIGINT, id BIGINT, epoch BIGINT) RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM sm.start_many(at, ARRAY[id], ARRAY[epoch]);
END $$;

-- Ends attempts. values, messages, retry_ats: NULL, or one element per lease.
CREATE FUNCTION sm.finish_many(
  at BIGINT, ids BIGINT[], epochs BIGINT[], outcomes TEXT[], "values" TEXT[] DEFAULT NULL,
  messages TEXT[] DEFAULT NULL, retry_ats BIGINT[] DEFAULT NULL
) RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  wanted CONSTANT INT := cardinality(ids);
  refusal TEXT;
  held RECORD;
  stale TEXT[];
  repeated TEXT[];
  moved BIGINT;
BEGIN
  IF wanted IS NULL OR wanted IS DISTINCT FROM cardinality(epochs)
    OR wanted IS DISTINCT FROM cardinality(outcomes) OR coalesce(cardinality("values"), wanted) <> wanted
    OR coalesce(cardinality(messages), wanted) <> wanted OR coalesce(cardinality(retry_ats), wanted) <> wanted
    OR (SELECT count(DISTINCT (no, epoch)) FROM unnest(ids, epochs) given (no, epoch)) <> wanted
  THEN
    RAISE EXCEPTION 'stationmaster: leases are refused: use arrays of one length, and each lease once'
    USING ERRCODE = 'SM003';
  END IF;
  SELECT reason INTO refusal
  FROM (
    SELECT place, CASE
        WHEN (sm._is_instant(at) AND sm._is_instant(coalesce(retry_at, 0))) IS NOT TRUE
        THEN 'an instant is refused: use microseconds since 1970'
        WHEN (outcome IN ('success', 'skipped', 'failed', 'given_back')
          AND (retry_at IS NULL OR outcome = 'failed')) IS NOT TRUE
        THEN 'an outcome is refused: use success, skipped, failed (which may have a retry_at) or given_back'
        WHEN octet_length(value) > 1048576 OR octet_length(message) > 1048576
        THEN 'value or message is refused: use text of at most 1048576 bytes, or NULL'
      END AS reason
    FROM unnest(outcomes, "values", messages, retry_ats) WITH ORDINALITY
      given (outcome, value, message, retry_at, place)
  ) checked
  WHERE reason IS NOT NULL
  ORDER BY place
  LIMIT 1;
  IF refusal IS NOT NULL THEN
    RAISE EXCEPTION 'stationmaster: %', refusal USING ERRCODE = 'SM003';
  END IF;

  -- A lease was queued no earlier than its task was enqueued, so enqueued_at is not needed. All arrays have the
  -- same rows.
  SELECT array_agg(no) AS nos, array_agg(epoch) AS epochs, array_agg(2::bigint << started::int) AS allowed,
    array_agg(state) AS states, array_agg(retry_at) AS dues, array_agg(0::bigint) AS keeps,
    array_agg(forgive) AS forgive, array_agg(ended_at) AS ended_at, array_agg(message) AS messages,
    array_agg(value) AS texts, bool_or(attempt_runs & 1 <> 0) AS is_recorded
  INTO held
  FROM (
    SELECT given.no, given.epoch, CASE became.outcome WHEN 'failed' THEN given.retry_at END AS retry_at,
      CASE
        WHEN became.outcome = 'success' THEN 6 WHEN became.outcome = 'skipped' THEN 8
        WHEN became.outcome = 'cancelled' THEN 9 WHEN became.outcome = 'given_back' THEN 0
        WHEN given.retry_at IS NULL THEN 7 ELSE 3
      END::bigint AS state,
      CASE became.outcome WHEN 'given_back' THEN 1 ELSE 0 END::bigint AS forgive,
      CASE WHEN became.outcome <> 'given_back' THEN
        greatest(at, lease.ready_at, lease.queued_at, lease.started_at, lease.ended_at)
      END AS ended_at,
      CASE WHEN became.outcome IN ('given_back', 'cancelled') THEN lease.message
        WHEN became.outcome <> 'success' THEN sm._escaped(given.message)
      END AS message,
      CASE became.outcome WHEN 'given_back' THEN lease.value WHEN 'success' THEN sm._escaped(given.value) END AS value,
      lease.started, task.attempt_runs
    FROM (
      SELECT * FROM unnest(ids, epochs, outcomes, "values", messages, retry_ats)
        given (no, epoch, outcome, value, message, retry_at)
      ORDER BY no
    ) given
    CROSS JOIN LATERAL (
      SELECT started, ready_at, queued_at, started_at, ended_at, message, value, cancel_at FROM sm.lease
      WHERE lease.no = given.no AND lease.epoch = given.epoch
      FOR UPDATE
    ) lease
    -- A cancelled task is neither retried nor given back.
    CROSS JOIN LATERAL (
      SELECT CASE WHEN lease.cancel_at IS NOT NULL AND given.outcome IN ('failed', 'given_back') THEN 'cancelled'
        ELSE given.outcome END AS outcome
    ) became
    CROSS JOIN LATERAL (SELECT attempt_runs FROM sm.task WHERE task.no = given.no OFFSET 0) task
  ) held;

  IF coalesce(cardinality(held.nos), 0) < wanted THEN
    SELECT array_agg(lease) FILTER (WHERE repeats IS NOT TRUE), array_agg(lease) FILTER (WHERE repeats)
    INTO stale, repeated
    FROM (
      SELECT format('task %s, epoch %s', given.no, given.epoch) AS lease,
        CASE given.outcome
          WHEN 'success' THEN stands.finished = 6 AND stands.value IS NOT DISTINCT FROM sm._escaped(given.value)
          WHEN 'failed' THEN stands.finished IN (3, 7, 9)
          WHEN 'skipped' THEN stands.finished = 8
          ELSE stands.finished IN (0, 9)
        END AS repeats
      FROM unnest(ids, epochs, outcomes, "values") given (no, epoch, outcome, value)
      LEFT JOIN LATERAL (
        SELECT finished, value FROM sm.idle WHERE idle.no = given.no AND idle.epoch = given.epoch
        UNION ALL
        SELECT ready.finished, ready.value
        FROM (SELECT * FROM sm.task WHERE task.no = given.no OFFSET 0) task
        CROSS JOIN LATERAL (
          SELECT * FROM sm.ready
          WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
            AND ready.map_index = task.map_index AND ready.no = task.no AND ready.epoch = given.epoch
          OFFSET 0
        ) ready
        OFFSET 0
      ) stands ON true
      WHERE (coalesce(given.no, 0), coalesce(given.epoch, 0)) NOT IN (
        SELECT no, epoch FROM unnest(held.nos, held.epochs) held (no, epoch))
    ) missed;
    IF stale IS NULL THEN
      RAISE EXCEPTION
        'stationmaster: finished like this before: roll back, and go on: what was committed then is stored'
      USING ERRCODE = 'SM002', DETAIL = array_to_string(repeated[:100], '; ');
    END IF;
    RAISE EXCEPTION 'stationmaster: stale lease: roll back, and stop the work'
    USING ERRCODE = 'SM001', DETAIL = array_to_string(stale[:100], '; ');
  END IF;
  IF held.is_recorded THEN
    RAISE EXCEPTION
      'stationmaster: the attempts of this task are recorded as runs: finish it through the crate'
    USING ERRCODE = 'SM004';
  END IF;

  SELECT count(*) INTO moved
  FROM sm._move(
    held.nos, held.epochs, held.allowed, held.states, held.dues, held.keeps, held.forgive, NULL, held.ended_at,
    held.states, held.messages, held.texts, array_fill(at, ARRAY[wanted]), NULL
  );
  IF moved <> wanted THEN
    RAISE EXCEPTION 'stationmaster: tasks changed while they were locked' USING ERRCODE = 'serialization_failure';
  END IF;
END $$;

CREATE FUNCTION sm.finish(
  at BIGINT, id BIGINT, epoch BIGINT, outcome TEXT, value TEXT DEFAULT NULL, message TEXT DEFAULT NULL,
  retry_at BIGINT DEFAULT NULL
) RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM sm.finish_many(
    at, ARRAY[id], ARRAY[epoch], ARRAY[outcome], ARRAY[value], ARRAY[message], ARRAY[retry_at]);
END $$;
