-- Returns the tasks whose leases a holder has, by number, in the columns of tasks_by_id.sql. The holder is
-- given as a range, because for a single value the server may prefer to walk all leases.
-- $1: the holder; $2: after this number; $3: how many.
SELECT task.no, task.namespace, task.workflow, task.run, task.task, task.map_index, task.lane, task.rank,
  task.logical_date, task.priority, lease.state, NULL::bigint AS due, lease.epoch, lease.slots,
  least(lease.cancel_at, greatest(lease.expires_at, beat.expires_at)), lease.attempt, coalesce(lease.forgiven, 0), task.lease_loss,
  task.attempt_runs, task.enqueued_at, lease.queued_at, lease.first_started_at, lease.started_at, lease.ended_at,
  lease.holder, task.retry, lease.message, lease.value, task.payload, lease.ready_at, coalesce(lease.lost, 0),
  lease.finished, lease.cancel_at, task.pool, task.slots, task.limits, task.queue,
  (SELECT note.at FROM sm.note WHERE note.no = lease.no AND note.epoch = lease.epoch),
  (SELECT note.text FROM sm.note WHERE note.no = lease.no AND note.epoch = lease.epoch)
FROM (
  SELECT *, 1 + started AS state FROM sm.lease
  WHERE holder >= '' AND (holder, no) > ($1::text, $2::bigint)
    AND (holder, no) <= ($1::text, 9223372036854775807)
  ORDER BY holder, no LIMIT $3::bigint) lease
CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = lease.no OFFSET 0) task
CROSS JOIN LATERAL (
  SELECT max(expires_at) AS expires_at FROM sm.beat WHERE beat.no = lease.no AND beat.epoch = lease.epoch) beat
ORDER BY lease.holder, lease.no
