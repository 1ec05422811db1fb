-- Moves tasks as grant.sql does, for tasks of one lane without limits whose commit is sent along. The counters
-- are left to _take_few, which follows. It fails (22012) if it cannot grant all of them.
-- $1 to $4: the tasks in order of admission, and their places: rank, logical date, map index. $5: their lane.
-- $6: holder. $7: expiry. $8: now. $9: 1 to start them.
WITH
locked AS MATERIALIZED (
  SELECT ready.at
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) given (no, rank, logical_date, map_index)
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready
    WHERE ready.lane = ($5::uuid[])[1] AND ready.rank = given.rank AND ready.logical_date = given.logical_date
      AND ready.map_index = given.map_index AND ready.no = given.no
    FOR UPDATE SKIP LOCKED) ready
),
gone AS (DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM locked)) RETURNING ready.*),
granted AS MATERIALIZED (
  SELECT gone.no, gone.rank, gone.logical_date, gone.epoch + 1 AS epoch,
    least(gone.attempt + 1, 4294967295) AS attempt, gone.forgiven, gone.lost, gone.ready_at, gone.first_started_at,
    gone.started_at, gone.ended_at, gone.finished, gone.message, gone.value, task.namespace, task.workflow, task.run,
    task.task, task.map_index, task.priority, task.slots, task.lease_loss, task.attempt_runs, task.enqueued_at,
    task.retry, task.payload, task.pool, task.limits, task.queue,
    CASE WHEN task.attempt_runs & 1 = 0 THEN $9::bigint ELSE 0 END AS started,
    greatest($8::bigint, task.enqueued_at, gone.ready_at, gone.queued_at, gone.started_at, gone.ended_at) AS at
  FROM gone CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = gone.no OFFSET 0) task
),
new_leases AS (
  INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, started, started_at,
    first_started_at, ended_at, forgiven, lost, finished, runs, holder, message, value)
  SELECT no, epoch, ($5::uuid[])[1], slots, $7::bigint, at, attempt, ready_at, started,
    CASE started WHEN 1 THEN at ELSE started_at END, coalesce(first_started_at, CASE started WHEN 1 THEN at END),
    ended_at, forgiven, lost, finished, nullif(attempt_runs, 0), $6::text, message, value
  FROM granted
)
SELECT no, namespace, workflow, run, task, map_index, ($5::uuid[])[1], rank, logical_date, priority, 1 + started,
  NULL::bigint, epoch, slots, $7::bigint, attempt, coalesce(forgiven, 0), lease_loss, attempt_runs, enqueued_at, at,
  coalesce(first_started_at, CASE started WHEN 1 THEN at END), CASE started WHEN 1 THEN at ELSE started_at END,
  ended_at, $6::text, retry, message, value, payload, ready_at, coalesce(lost, 0), finished, NULL::bigint, pool, slots,
  limits, queue, true, true
FROM granted
