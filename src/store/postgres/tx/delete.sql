-- Deletes tasks and their sensors, each if the task has this epoch, waits or has ended in one of these states,
-- keeps no slots, and has no sensor change that waits for a number. Returns the places of the deleted tasks,
-- counted from 1.
-- $1, $2, $3, of each task: number, epoch, states as bits.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY given (no, epoch, allowed, place)
),
sorted AS MATERIALIZED (
  SELECT given.no, given.epoch, bit_or(given.allowed) AS allowed FROM given
  WHERE NOT EXISTS (SELECT FROM sm.sensor_inbox WHERE sensor_inbox.no = given.no OFFSET 0)
  GROUP BY given.no, given.epoch ORDER BY given.no
),
held_idle AS MATERIALIZED (
  SELECT idle.no
  FROM sorted
  CROSS JOIN LATERAL (
    SELECT no FROM sm.idle
    WHERE idle.no = sorted.no AND idle.epoch = sorted.epoch AND (sorted.allowed >> idle.state::int) & 1 = 1
      AND idle.slots IS NULL
    FOR UPDATE
  ) idle
),
idled AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM held_idle)) RETURNING no, epoch, lane, state),
held_ready AS MATERIALIZED (
  SELECT ready.at
  FROM sorted
  CROSS JOIN LATERAL (
    SELECT lane, rank, logical_date, map_index FROM sm.task WHERE task.no = sorted.no OFFSET 0
  ) task
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = sorted.no AND ready.epoch = sorted.epoch
    FOR UPDATE
  ) ready
  WHERE sorted.allowed & 1 = 1
),
readied AS (DELETE FROM sm.ready WHERE ctid = ANY (ARRAY(SELECT at FROM held_ready)) RETURNING no, epoch, lane),
gone AS MATERIALIZED (
  SELECT no, epoch, lane, state FROM idled UNION ALL SELECT no, epoch, lane, 0 FROM readied
),
tasks AS (DELETE FROM sm.task WHERE no = ANY (ARRAY(SELECT no FROM gone))),
beats AS (DELETE FROM sm.beat WHERE no = ANY (ARRAY(SELECT no FROM gone))),
notes AS (DELETE FROM sm.note WHERE no = ANY (ARRAY(SELECT no FROM gone))),
attempts AS (DELETE FROM sm.attempt WHERE no = ANY (ARRAY(SELECT no FROM gone))),
sensors AS (DELETE FROM sm.sensor WHERE no = ANY (ARRAY(SELECT no FROM gone)) RETURNING no),
changes AS (INSERT INTO sm.sensor_inbox (no, kind) SELECT no, 2 FROM sensors),
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came)
  SELECT lane, -count(*) FILTER (WHERE state = 0), -count(*), 0, 0, 0 FROM gone WHERE state < 6 GROUP BY lane
)
SELECT DISTINCT ON (gone.no) given.place
FROM gone
JOIN given ON given.no = gone.no AND given.epoch = gone.epoch AND (given.allowed >> gone.state::int) & 1 = 1
ORDER BY gone.no, given.place
