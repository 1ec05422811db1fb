-- Ends a task without a holder: a waiting task or a sensor. With a deadline, asks the holder of a lease to end
-- it.
CREATE FUNCTION sm.cancel(at BIGINT, id BIGINT, outcome TEXT, message TEXT, deadline BIGINT DEFAULT NULL)
RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  to_state CONSTANT BIGINT := CASE outcome
    WHEN 'success' THEN 6 WHEN 'failed' THEN 7 WHEN 'skipped' THEN 8 WHEN 'cancelled' THEN 9 END;
  told CONSTANT TEXT := sm._escaped(cancel.message);
  known RECORD;
  stands RECORD;
  registered_at BIGINT;
  instant BIGINT;
  reason BIGINT;
BEGIN
  IF to_state IS NULL OR (cancel.deadline IS NOT NULL AND to_state <> 9) THEN
    RAISE EXCEPTION
      'stationmaster: an outcome is refused: use cancelled (which may have a deadline), success, failed or skipped'
    USING ERRCODE = 'SM003';
  END IF;
  IF (sm._is_instant(cancel.at) AND sm._is_instant(coalesce(cancel.deadline, 0))) IS NOT TRUE THEN
    RAISE EXCEPTION 'stationmaster: an instant is refused: use microseconds since 1970' USING ERRCODE = 'SM003';
  END IF;
  IF (octet_length(cancel.message) <= 1048576) IS NOT TRUE THEN
    RAISE EXCEPTION 'stationmaster: message is refused: use text of at most 1048576 bytes'
    USING ERRCODE = 'SM003';
  END IF;

  -- If the task moves or changes while this waits for its lock, it is looked up again in its new place.
  FOR look IN 1 .. 16 LOOP
    SELECT no, lane, rank, logical_date, map_index, enqueued_at, attempt_runs INTO known
    FROM sm.task WHERE task.no = cancel.id;
    SELECT state, epoch, due, ready_at, queued_at, started_at, ended_at, finished, message INTO stands
    FROM sm.idle WHERE idle.no = known.no
    FOR UPDATE;
    IF stands.epoch IS NULL THEN
      SELECT 0::bigint AS state, epoch, NULL::bigint AS due, ready_at, queued_at, started_at, ended_at, finished,
        message
      INTO stands
      FROM sm.ready
      WHERE ready.lane = known.lane AND ready.rank = known.rank AND ready.logical_date = known.logical_date
        AND ready.map_index = known.map_index AND ready.no = known.no
      FOR UPDATE;
    END IF;
    EXIT WHEN stands.epoch IS NOT NULL;
    IF NOT EXISTS (SELECT FROM sm.task WHERE task.no = known.no) THEN
      RAISE EXCEPTION 'stationmaster: unknown task: none has this id' USING ERRCODE = 'SM005';
    END IF;
    IF EXISTS (SELECT FROM sm.lease WHERE lease.no = known.no) THEN
      IF cancel.deadline IS NOT NULL THEN
        -- A deadline is never extended. If the lease ended while this waited for it, the task is looked up
        -- again.
        UPDATE sm.lease SET cancel_at = cancel.deadline, expires_at = least(expires_at, cancel.deadline), message = told
        WHERE lease.no = known.no AND (cancel_at IS NULL OR cancel_at > cancel.deadline);
        IF FOUND OR EXISTS (SELECT FROM sm.lease WHERE lease.no = known.no AND cancel_at <= cancel.deadline) THEN
          RETURN;
        END IF;
        CONTINUE;
      END IF;
      RAISE EXCEPTION 'stationmaster: cannot be cancelled: the task is queued or running'
      USING ERRCODE = 'SM006';
    END IF;
  END LOOP;
  IF stands.epoch IS NULL THEN
    RAISE EXCEPTION 'stationmaster: the task was moved by others, again and again: call again'
    USING ERRCODE = 'serialization_failure';
  END IF;
  IF stands.state = to_state AND stands.finished IS NULL AND stands.message IS NOT DISTINCT FROM told THEN
    RAISE EXCEPTION
      'stationmaster: cancelled like this before: roll back, and go on: what was committed then is stored'
    USING ERRCODE = 'SM002';
  END IF;
  IF stands.state >= 6 THEN
    RAISE EXCEPTION 'stationmaster: cannot be cancelled: the task has ended' USING ERRCODE = 'SM006';
  END IF;

  instant := greatest(
    cancel.at, known.enqueued_at, CASE WHEN stands.due IS NULL THEN stands.ready_at END, stands.queued_at,
    stands.started_at, stands.ended_at);
  IF stands.state = 4 THEN
    IF known.attempt_runs & 1 <> 0 THEN
      RAISE EXCEPTION
        'stationmaster: the attempts of this task are recorded as runs: cancel it through the crate'
      USING ERRCODE = 'SM004';
    END IF;
    UPDATE sm.sensor SET state = 1
    WHERE sensor.no = known.no AND sensor.epoch = stands.epoch AND sensor.state = 0
    RETURNING sensor.registered_at INTO registered_at;
    IF FOUND THEN
      instant := greatest(instant, registered_at);
      INSERT INTO sm.sensor_inbox (no, kind) VALUES (known.no, 1);
      -- Cancelled.
      reason := 3;
    END IF;
  END IF;
  PERFORM sm._move(
    ARRAY[known.no], ARRAY[stands.epoch], ARRAY[1::bigint << stands.state::int], ARRAY[to_state], NULL,
    ARRAY[0::bigint], ARRAY[0::bigint], NULL, ARRAY[instant], NULL, ARRAY[told], NULL, NULL,
    ARRAY[reason]);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'stationmaster: a task changed while it was locked' USING ERRCODE = 'serialization_failure';
  END IF;
END $$;
