-- Ends attempts that the caller has not read, each if its task still has a lease of this epoch. Does what
-- `move` does, for the most common moves. An attempt ends no earlier than its latest recorded instant. A
-- successful attempt that must be kept is only locked: `move` ends it. Returns the places of the ended
-- attempts, counted from 1, whether each was started and is recorded as a run, and whether the feed reports it.
-- $1 to $6, of each end: number, epoch, new state, ended at, message, value. $7: 0, or how many leases must be
-- ended, none of them recorded as a run. Otherwise it fails (22012), because its commit is sent along.
WITH
given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])
    WITH ORDINALITY given (no, epoch, state, ended_at, message, value, place)
),
-- Deleted by number. A row that was changed while this waited for it would not be found by its ctid.
held AS MATERIALIZED (
  SELECT lease.no, lease.runs
  FROM (SELECT DISTINCT no, epoch FROM given ORDER BY no, epoch) given
  CROSS JOIN LATERAL (
    SELECT no, runs FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch FOR UPDATE
  ) lease
),
gone AS (DELETE FROM sm.lease WHERE no = ANY (ARRAY(SELECT no FROM held WHERE coalesce(runs, 0) & 8 = 0)) RETURNING lease.*),
-- Of several ends of one lease, the first counts.
ended AS MATERIALIZED (
  SELECT DISTINCT ON (gone.no) given.place, given.state, given.message AS told, given.value AS result,
    greatest(given.ended_at, gone.ready_at, gone.queued_at, gone.started_at, gone.ended_at) AS at, gone.*
  FROM gone JOIN given ON given.no = gone.no AND given.epoch = gone.epoch
  ORDER BY gone.no, given.place
),
to_idle AS (
  INSERT INTO sm.idle (
    no, state, epoch, lane, ready_at, attempt, forgiven, lost, queued_at, first_started_at, started_at, ended_at,
    finished, message, value
  )
  SELECT no, state, epoch, lane, at, attempt, forgiven, lost, queued_at, first_started_at, started_at, at, state,
    told, result
  FROM ended
),
-- The events for the feed.
told AS (
  INSERT INTO sm.feed_inbox (no, attempt, at, state, map_index, namespace, workflow, run, task, value, message)
  SELECT ended.no, ended.attempt, ended.at, ended.state, task.map_index, task.namespace, task.workflow, task.run,
    task.task, ended.result, ended.told
  FROM ended
  CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = ended.no OFFSET 0) task
  WHERE ended.runs & 2 <> 0
  ORDER BY ended.place
),
appended AS (
  INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came)
  SELECT lane, 0, -count(*), sum(slots)::bigint, count(*), 0 FROM ended GROUP BY lane
)
SELECT place, started = 1 AND coalesce(runs, 0) & 1 = 1, coalesce(runs, 0) & 2 <> 0 FROM ended
UNION ALL
SELECT NULL, FALSE, FALSE FROM (SELECT count(*) FILTER (WHERE coalesce(runs, 0) & 1 = 0) AS plain FROM ended) counted
WHERE CASE WHEN $7::bigint = 0 THEN FALSE ELSE 1 / (plain = $7::bigint)::int IS NULL END
