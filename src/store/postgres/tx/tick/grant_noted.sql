-- Moves the tasks that _tick_few has counted and recorded under the name of its tick, as grant.sql does. It
-- fails (22012) if it cannot grant all of them in the lane in which they were counted.
-- $1: the name of the tick. $2: holder. $3: expiry. $4: now. $5: 1 to start them.
WITH
given AS MATERIALIZED (SELECT unnest(nos) AS no FROM sm.request WHERE id = $1::text),
locked AS MATERIALIZED (
  SELECT ready.at
  FROM given
  CROSS JOIN LATERAL (
    SELECT lane, rank, logical_date, map_index FROM sm.task
    WHERE task.no = given.no AND task.lane = nullif(current_setting('stationmaster.lane', true), '')::uuid OFFSET 0) task
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = given.no
    FOR UPDATE SKIP LOCKED) ready
),
wanted AS MATERIALIZED (
  SELECT 1 / ((SELECT count(*) FROM locked) = (SELECT count(*) FROM given))::int = 1 AS is_whole
),
gone AS (
  DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM locked WHERE (SELECT is_whole FROM wanted)))
  RETURNING ready.*
),
granted AS MATERIALIZED (
  SELECT gone.no, gone.lane, gone.rank, gone.logical_date, gone.epoch + 1 AS epoch,
    least(gone.attempt + 1, 4294967295) AS attempt, gone.forgiven, gone.lost, gone.ready_at, gone.first_started_at,
    gone.started_at, gone.ended_at, gone.finished, gone.message, gone.value, task.namespace, task.workflow, task.run,
    task.task, task.map_index, task.priority, task.slots, task.lease_loss, task.attempt_runs, task.enqueued_at,
    task.retry, task.payload, task.pool, task.limits, task.queue,
    CASE WHEN task.attempt_runs & 1 = 0 THEN $5::bigint ELSE 0 END AS started,
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
)
SELECT no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority, 1 + started,
  NULL::bigint, epoch, slots, $3::bigint, attempt, coalesce(forgiven, 0), lease_loss, attempt_runs, enqueued_at, at,
  coalesce(first_started_at, CASE started WHEN 1 THEN at END), CASE started WHEN 1 THEN at ELSE started_at END,
  ended_at, $2::text, retry, message, value, payload, ready_at, coalesce(lost, 0), finished, NULL::bigint, pool, slots,
  limits, queue
FROM granted
