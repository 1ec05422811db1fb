-- Ends sensors that wait, and returns them with their places among those given, counted from 1.
-- $1 and $2: numbers of tasks and epochs; no registration twice.
WITH
found AS MATERIALIZED (
  SELECT given.place, sensor.no, counter.value + given.place AS changed
  FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY given (no, epoch, place)
  CROSS JOIN (SELECT value FROM sm.counter WHERE name = 'sensor') counter
  CROSS JOIN LATERAL (
    SELECT no FROM sm.sensor
    WHERE sensor.no = given.no AND sensor.epoch = given.epoch AND sensor.state = 0
    OFFSET 0
  ) sensor
),
counted AS (
  UPDATE sm.counter SET value = found.last
  FROM (SELECT max(changed) AS last FROM found) found
  WHERE counter.name = 'sensor' AND found.last IS NOT NULL
),
ended AS (
  UPDATE sm.sensor SET state = 1, changed = found.changed
  FROM found
  WHERE sensor.no = found.no
  RETURNING sensor.*, found.place
)
SELECT sensor.no, sensor.fingerprint, sensor.epoch, sensor.attempt, sensor.generation, sensor.interval,
  sensor.timeout, sensor.on_landed, sensor.on_missed, sensor.registered_at, sensor.times_out_at, sensor.state,
  sensor.changed, sensor.kind, sensor.context, sensor.execution, sensor.poke, sensor.max_interval,
  task.namespace, task.workflow, task.run, task.task, task.map_index,
  sensor.place
FROM ended sensor
CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = sensor.no OFFSET 0) task
