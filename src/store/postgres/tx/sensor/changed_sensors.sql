-- Returns sensors that changed after a number, in the order of their changes. A change without a number is
-- excluded: it will get a higher one.
-- changes, states: which of them, if not all.
-- $1 the number; $2 how many; $3 the number of shard codes; $4 the remainder of 2 to the 64th by that; $5 and
-- $6 ranges of codes, empty arrays for all.
SELECT sensor.no, sensor.fingerprint, sensor.epoch, sensor.attempt, sensor.generation, sensor.interval,
  sensor.timeout, sensor.on_landed, sensor.on_missed, sensor.registered_at, sensor.times_out_at, sensor.state,
  sensor.seq, sensor.kind, sensor.context, sensor.execution, sensor.poke, sensor.max_interval, sensor.holder,
  task.namespace, task.workflow, task.run, task.task, task.map_index
FROM (
  SELECT change.seq, sensor.*
  FROM (
    SELECT seq, no FROM sm.sensor_change change
    WHERE change.seq > $1::bigint
      {changes}
    ORDER BY seq OFFSET 0
  ) change
  CROSS JOIN LATERAL (
    SELECT * FROM sm.sensor
    WHERE sensor.no = change.no
      {states}
      -- A code is the unsigned fingerprint modulo the number of codes. A negative fingerprint is too small by 2
      -- to the 64th, and its remainder is negative.
      AND (cardinality($5::bigint[]) = 0 OR EXISTS (
        SELECT FROM unnest($5::bigint[], $6::bigint[]) span (low, high)
        WHERE (sensor.fingerprint % $3::bigint
          + CASE WHEN sensor.fingerprint < 0 THEN $3::bigint + $4::bigint ELSE 0 END) % $3::bigint
          BETWEEN span.low AND span.high - 1
      ))
    OFFSET 0
  ) sensor
  ORDER BY change.seq
  LIMIT $2::bigint
) sensor
CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = sensor.no OFFSET 0) task
