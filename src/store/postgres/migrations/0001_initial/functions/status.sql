-- The functions and views for hosts with their own drivers: see docs/sql.md. Names that begin with an
-- underscore are internal. Errors have the class SM.

-- One row per task. map_key: the map index, -1 for a task that is not mapped. A host's text is returned as it
-- was given, except that a NUL stays escaped.
CREATE VIEW sm.status AS
SELECT task.no AS id, stands.epoch, task.namespace, task.workflow, task.run, task.task,
  nullif(task.map_index, -1) AS map_index, stands.state,
  coalesce(task.queue, 'default') AS queue, task.pool, task.slots, task.limits, task.priority,
  task.logical_date, stands.due, stands.attempt, coalesce(stands.forgiven, 0) AS forgiven, stands.holder,
  stands.expires_at, task.enqueued_at, stands.queued_at, stands.first_started_at, stands.started_at,
  stands.ended_at, task.retry, replace(stands.message, chr(26) || '1', chr(26)) AS message,
  replace(stands.value, chr(26) || '1', chr(26)) AS value,
  replace(task.payload, chr(26) || '1', chr(26)) AS payload, task.map_index AS map_key, stands.cancel_at
FROM sm.task
CROSS JOIN LATERAL (
  SELECT 'scheduled' AS state, epoch, NULL::bigint AS due, NULL::bigint AS expires_at, attempt, forgiven,
    queued_at, first_started_at, started_at, ended_at, NULL::text AS holder, message, value, NULL::bigint AS cancel_at
  FROM sm.ready
  WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
    AND ready.map_index = task.map_index AND ready.no = task.no
  UNION ALL
  SELECT CASE started WHEN 0 THEN 'queued' ELSE 'running' END, epoch, NULL,
    least(cancel_at, greatest(expires_at, (
      SELECT max(beat.expires_at) FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch))),
    attempt, forgiven, queued_at, first_started_at, started_at, ended_at, holder, message, value, cancel_at
  FROM sm.lease
  WHERE lease.no = task.no
  UNION ALL
  SELECT CASE state
      WHEN 3 THEN 'up_for_retry' WHEN 4 THEN 'sensing' WHEN 5 THEN 'scheduled' WHEN 6 THEN 'success'
      WHEN 7 THEN 'failed' WHEN 8 THEN 'skipped' ELSE 'cancelled'
    END,
    epoch, due, NULL, attempt, forgiven, queued_at, first_started_at, started_at, ended_at, NULL, message, value, NULL
  FROM sm.idle
  WHERE idle.no = task.no
  OFFSET 0
) stands;

-- Shows what sharing saves: the waiting sensors and their distinct targets.
CREATE VIEW sm.sharing AS
SELECT kind, count(*) AS sensors, count(DISTINCT context) AS targets FROM sm.sensor WHERE state = 0 GROUP BY kind;

CREATE FUNCTION sm._is_instant(at BIGINT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS
$$SELECT $1 BETWEEN -8334601228800000000 AND 8210266876799999999$$;

-- Returns a host's text as the store writes it.
CREATE FUNCTION sm._escaped(given TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS
$$SELECT replace($1, chr(26), chr(26) || '1')$$;

-- Wakes the services of listening stores when the transaction commits.
CREATE FUNCTION sm.wake(what TEXT DEFAULT 'ready capacity') RETURNS VOID
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_notify('sm_channel', what);
END $$;
