-- Does what end.sql does, for one end. It sets up only the plans that it needs, because setting up plans is
-- most of the cost of a short statement. Returns the same, or NULLs if there is no such lease or its attempt must
-- be kept. (It returns no set: PL/pgSQL then calls it without setting up a plan.)
-- expected: as in end.sql, how many leases must be ended without a further statement, or 0.
-- leaves: the delta is only returned, because the calling tick folds it at once.
CREATE FUNCTION sm._end_one(lease_no BIGINT, lease_epoch BIGINT, new_state BIGINT, ended BIGINT, new_message TEXT,
  new_value TEXT, expected BIGINT, leaves BOOLEAN,
  OUT place BIGINT, OUT is_recorded BOOLEAN, OUT is_fed BOOLEAN, OUT left_delta sm.delta) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  gone sm.lease;
BEGIN
  DELETE FROM sm.lease WHERE no = lease_no AND epoch = lease_epoch AND coalesce(runs, 0) & 8 = 0 RETURNING * INTO gone;
  is_recorded := gone.started = 1 AND coalesce(gone.runs, 0) & 1 = 1;
  is_fed := coalesce(gone.runs, 0) & 2 <> 0;
  IF expected <> 0 AND (gone.no IS NULL OR coalesce(gone.runs, 0) & 1 = 1) THEN
    RAISE division_by_zero;
  ELSIF gone.no IS NULL THEN
    RETURN;
  END IF;
  ended := greatest(ended, gone.ready_at, gone.queued_at, gone.started_at, gone.ended_at);
  INSERT INTO sm.idle (no, state, epoch, lane, ready_at, attempt, forgiven, lost, queued_at, first_started_at, started_at,
    ended_at, finished, message, value)
  VALUES (gone.no, new_state, gone.epoch, gone.lane, ended, gone.attempt, gone.forgiven, gone.lost, gone.queued_at,
    gone.first_started_at, gone.started_at, ended, new_state, new_message, new_value);
  IF is_fed THEN
    INSERT INTO sm.feed_inbox (no, attempt, at, state, map_index, namespace, workflow, run, task, value, message)
    SELECT no, gone.attempt, ended, new_state, map_index, namespace, workflow, run, task, new_value, new_message
    FROM sm.task WHERE no = gone.no;
  END IF;
  IF leaves THEN
    left_delta.lane := gone.lane;
    left_delta.ready := 0;
    left_delta.tasks := -1;
    left_delta.slots := gone.slots;
    left_delta.came := 0;
  ELSE
    INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came) VALUES (gone.lane, 0, -1, gone.slots, 1, 0);
  END IF;
  place := 1;
END $$;
