-- Returns the given tasks, each with its place among them, counted from 1. The changing columns of a task are in
-- exactly one of three tables.
-- given: numbers or keys, with their places. is_given: whether a task is one of them.
SELECT task.no, task.namespace, task.workflow, task.run, task.task, task.map_index, task.lane, task.rank,
  task.logical_date, task.priority, stands.state, stands.due, stands.epoch, coalesce(stands.slots, 0),
  stands.expires_at, stands.attempt, coalesce(stands.forgiven, 0), task.lease_loss, task.attempt_runs,
  task.enqueued_at, stands.queued_at, stands.first_started_at, stands.started_at, stands.ended_at,
  stands.holder, task.retry, stands.message, stands.value, task.payload, stands.ready_at,
  coalesce(stands.lost, 0), stands.finished, stands.cancel_at, task.pool, task.slots, task.limits, task.queue,
  given.place, stands.noted_at, stands.note
FROM {given}
CROSS JOIN LATERAL (
  SELECT * FROM sm.task
  WHERE {is_given}
  OFFSET 0
) task
CROSS JOIN LATERAL (
  SELECT 0::bigint AS state, NULL::bigint AS due, epoch, NULL::bigint AS slots, NULL::bigint AS expires_at,
    attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at, finished,
    NULL::text AS holder, message, value, ready_at, NULL::bigint AS cancel_at, NULL::bigint AS noted_at,
    NULL::text AS note
  FROM sm.ready
  WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
    AND ready.map_index = task.map_index AND ready.no = task.no
  UNION ALL
  SELECT 1 + started, NULL, epoch, slots,
    least(cancel_at, greatest(expires_at, (
      SELECT max(beat.expires_at) FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch))),
    attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at, finished, holder,
    message, value, ready_at, cancel_at,
    (SELECT note.at FROM sm.note WHERE note.no = lease.no AND note.epoch = lease.epoch),
    (SELECT note.text FROM sm.note WHERE note.no = lease.no AND note.epoch = lease.epoch)
  FROM sm.lease
  WHERE lease.no = task.no
  UNION ALL
  SELECT state, due, epoch, slots, NULL,
    attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at, finished, NULL,
    message, value, ready_at, NULL, NULL, NULL
  FROM sm.idle
  WHERE idle.no = task.no
  OFFSET 0
) stands
