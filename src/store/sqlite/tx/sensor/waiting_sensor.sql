-- Returns the sensor of a task, if it waits under this registration. ?1 the task's number; ?2 the epoch.
SELECT no, fingerprint, epoch, attempt, generation, interval, timeout, on_landed, on_missed, registered_at,
  times_out_at, state, changed, kind, context, execution, poke, max_interval, holder
FROM sm_sensor
WHERE no = ?1 AND epoch = ?2 AND state = 0
