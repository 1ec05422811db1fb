-- Ends waiting sensors, records this in the inbox, and returns them with their places among the given ones,
-- counted from 1. They are locked in the order of their tasks, which the transaction has locked before.
-- $1 and $2: numbers of tasks and epochs; no registration twice.
WITH
held AS MATERIALIZED (
  SELECT sensor.no, given.place
  FROM (
    SELECT * FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY given (no, epoch, place) ORDER BY given.no
  ) given
  CROSS JOIN LATERAL (
    SELECT no FROM sm.sensor
    WHERE sensor.no = given.no AND sensor.epoch = given.epoch AND sensor.state = 0
    FOR NO KEY UPDATE
  ) sensor
),
ended AS (
  UPDATE sm.sensor SET state = 1 WHERE no = ANY (ARRAY(SELECT no FROM held)) RETURNING *
),
placed AS MATERIALIZED (SELECT ended.*, held.place FROM ended JOIN held USING (no)),
noted AS (
  INSERT INTO sm.sensor_inbox (no, kind) SELECT placed.no, 1 FROM placed ORDER BY placed.place
)
SELECT sensor.no, sensor.fingerprint, sensor.epoch, sensor.attempt, sensor.generation, sensor.interval,
  sensor.timeout, sensor.on_landed, sensor.on_missed, sensor.registered_at, sensor.times_out_at, sensor.state,
  0::bigint, sensor.kind, sensor.context, sensor.execution, sensor.poke, sensor.max_interval, sensor.holder,
  task.namespace, task.workflow, task.run, task.task, task.map_index,
  sensor.place
FROM placed sensor
CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = sensor.no OFFSET 0) task
