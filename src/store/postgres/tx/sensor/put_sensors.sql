-- Registers sensors, replacing earlier registrations of their tasks, which the transaction has locked. Records
-- each registration in the inbox, even one that a later one of this call replaces. Changes nothing unless all
-- tasks exist. Returns those that do.
-- $1 to $14, and $18 for the holders: one array per column; $15 is the ordinal of each registration among those
-- of its task in this call, from 1 on; $16 is 1 if it is the last of them; $17 their total number.
WITH
found AS MATERIALIZED (
  SELECT given.*, task.namespace, task.workflow, task.run, task.task, task.map_index, stands.attempt,
    coalesce(sensor.generation, 0) + given.nth AS generation
  FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[],
    $15::bigint[], $16::bigint[], $18::text[]
  ) WITH ORDINALITY given (
    no, epoch, fingerprint, interval, timeout, execution, poke, max_interval, on_landed, on_missed,
    registered_at, times_out_at, kind, context, nth, last, holder, place
  )
  CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = given.no OFFSET 0) task
  CROSS JOIN LATERAL (
    SELECT attempt FROM sm.idle WHERE idle.no = task.no
    UNION ALL
    SELECT attempt FROM sm.lease WHERE lease.no = task.no
    UNION ALL
    SELECT attempt FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = task.no
    OFFSET 0
  ) stands
  LEFT JOIN LATERAL (
    SELECT generation FROM sm.sensor WHERE sensor.no = given.no OFFSET 0
  ) sensor ON true
),
complete AS MATERIALIZED (SELECT count(*) = $17::bigint AS complete FROM found),
-- A statement inserts a row once, so only the last registration of each task is written.
put AS (
  INSERT INTO sm.sensor (
    no, epoch, state, fingerprint, attempt, generation, interval, timeout, execution, poke, max_interval,
    on_landed, on_missed, registered_at, times_out_at, kind, context, holder
  )
  SELECT found.no, found.epoch, 0, found.fingerprint, found.attempt, found.generation, found.interval,
    found.timeout, found.execution, found.poke, found.max_interval, found.on_landed, found.on_missed,
    found.registered_at, found.times_out_at, found.kind, found.context, found.holder
  FROM found
  WHERE found.last = 1 AND (SELECT complete FROM complete)
  ORDER BY found.no
  ON CONFLICT (no) DO UPDATE SET epoch = excluded.epoch, state = excluded.state,
    fingerprint = excluded.fingerprint, attempt = excluded.attempt, generation = excluded.generation,
    interval = excluded.interval, timeout = excluded.timeout, execution = excluded.execution,
    poke = excluded.poke, max_interval = excluded.max_interval, on_landed = excluded.on_landed,
    on_missed = excluded.on_missed, registered_at = excluded.registered_at,
    times_out_at = excluded.times_out_at, kind = excluded.kind, context = excluded.context,
    holder = excluded.holder
),
noted AS (
  INSERT INTO sm.sensor_inbox (no, kind)
  SELECT found.no, 0 FROM found WHERE (SELECT complete FROM complete) ORDER BY found.place
)
SELECT place, namespace, workflow, run, task, map_index, attempt, generation FROM found
