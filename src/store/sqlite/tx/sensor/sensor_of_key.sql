-- Returns the sensor of the task with a key. ?1 to ?5: namespace, workflow, run, task, map index.
SELECT no, fingerprint, epoch, attempt, generation, interval, timeout, on_landed, on_missed, registered_at,
  times_out_at, state, changed, kind, context, execution, poke, max_interval, holder
FROM sm_sensor
WHERE no = (
  SELECT no FROM sm_task
  WHERE namespace = ?1 AND workflow = ?2 AND run = ?3 AND task = ?4 AND map_index = ?5
)
