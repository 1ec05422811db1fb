-- Returns the sensors of tasks with these keys, each with its place among them, counted from 1.
-- $1 to $5: namespaces, workflows, runs, tasks, map indexes.
SELECT sensor.no, sensor.fingerprint, sensor.epoch, sensor.attempt, sensor.generation, sensor.interval,
  sensor.timeout, sensor.on_landed, sensor.on_missed, sensor.registered_at, sensor.times_out_at, sensor.state,
  coalesce(change.seq, 0), sensor.kind, sensor.context, sensor.execution, sensor.poke, sensor.max_interval, sensor.holder,
  task.namespace, task.workflow, task.run, task.task, task.map_index,
  given.place
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY
  given (namespace, workflow, run, task, map_index, place)
CROSS JOIN LATERAL (
  SELECT * FROM sm.task
  WHERE task.namespace = given.namespace AND task.workflow = given.workflow AND task.run = given.run
    AND task.task = given.task AND task.map_index = given.map_index
  OFFSET 0
) task
CROSS JOIN LATERAL (SELECT * FROM sm.sensor WHERE sensor.no = task.no OFFSET 0) sensor
LEFT JOIN LATERAL (SELECT seq FROM sm.sensor_change WHERE sensor_change.no = sensor.no OFFSET 0) change ON true
