-- A task's state is in exactly one of three tables. $1 the numbers.
SELECT task.no, task.namespace, task.workflow, task.run, task.task, task.map_index, task.lane, task.rank, task.logical_date,
  task.priority, moving.state, moving.due, moving.epoch, coalesce(moving.slots, 0), moving.expires_at, moving.attempt, coalesce(moving.forgiven, 0),
  task.lease_loss, task.attempt_runs, task.enqueued_at, moving.queued_at, moving.first_started_at, moving.started_at, moving.ended_at,
  moving.holder, task.retry, moving.message, moving.value, task.payload, moving.ready_at, coalesce(moving.lost, 0), moving.finished,
  task.pool, task.slots, task.limits, place
FROM unnest($1::bigint[]) WITH ORDINALITY given (no, place)
CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = given.no OFFSET 0) task
CROSS JOIN LATERAL (
  SELECT 0::bigint AS state, NULL::bigint AS due, epoch, NULL::bigint AS slots, NULL::bigint AS expires_at, attempt, forgiven, lost, queued_at, first_started_at,
    started_at, ended_at, finished, NULL::text AS holder, message, value, ready_at
  FROM sm.ready WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
    AND ready.map_index = task.map_index AND ready.no = task.no
  UNION ALL
  SELECT 1 + started, NULL, epoch, slots, greatest(expires_at, (SELECT max(beat.expires_at) FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch)), attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, holder, message, value, ready_at
  FROM sm.lease WHERE lease.no = task.no
  UNION ALL
  SELECT state, due, epoch, slots, NULL, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at, finished, NULL, message, value, ready_at
  FROM sm.idle WHERE idle.no = task.no
) moving
