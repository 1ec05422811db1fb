-- Makes overdue tasks ready, earliest first, then in the order of admission. Returns how many, and, if lanes
-- are filed, their lanes. A row locked by another transaction is skipped, and its number is remembered.
-- $1: now. $2: the most tasks.
WITH
last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
-- Kept regardless of this tick's clock: the bound may be past them.
early AS MATERIALIZED (
  SELECT idle.* FROM unnest((SELECT early FROM last)) asked (no) CROSS JOIN LATERAL (
    SELECT no, due, rank, logical_date, map_index FROM sm.idle
    WHERE idle.no = asked.no OFFSET 0) idle
  WHERE idle.due IS NOT NULL
),
early_free AS MATERIALIZED (
  SELECT idle.no FROM (
    SELECT no FROM early WHERE due <= $1::bigint ORDER BY due, rank, logical_date, map_index, no) early
  CROSS JOIN LATERAL (SELECT no FROM sm.idle WHERE idle.no = early.no FOR UPDATE SKIP LOCKED) idle
  LIMIT $2::bigint
),
room AS MATERIALIZED (SELECT $2::bigint - (SELECT count(*) FROM early_free) AS most),
page AS MATERIALIZED (
  SELECT no, due FROM sm.idle WHERE idle.due >= (SELECT due FROM last) AND idle.due <= $1::bigint
  ORDER BY due, rank, logical_date, map_index, no LIMIT (SELECT most FROM room)
),
free AS MATERIALIZED (
  SELECT no FROM sm.idle WHERE idle.due >= (SELECT due FROM last) AND idle.due <= $1::bigint
  ORDER BY due, rank, logical_date, map_index, no LIMIT (SELECT most FROM room)
  FOR UPDATE SKIP LOCKED
),
gone AS (
  DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM free UNION SELECT no FROM early_free)) RETURNING idle.*
),
new_ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value)
  SELECT lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value
  FROM gone
),
-- The task may have been committed after the fold. Its lane may then have no row yet, and perhaps no counter.
lanes AS MATERIALIZED (
  SELECT more.*, was.at, coalesce(was.ready, 0) + more.count AS ready, coalesce(was.tasks, 0) AS tasks, was.bound,
    coalesce(was.early, '{}') AS early
  FROM (
    SELECT lane AS digest, count(*) AS count, min(ARRAY[rank, logical_date, map_index, no]) AS head
    FROM gone GROUP BY lane
  ) more
  LEFT JOIN LATERAL (
    SELECT ctid AS at, ready, tasks, ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
    WHERE lane_use.digest = more.digest ORDER BY version DESC LIMIT 1) was ON true
),
-- As in the fold: up to 32 are remembered one by one, and the bound is lowered for the others.
before AS MATERIALIZED (
  SELECT came.lane AS digest, came.no, came.place,
    cardinality(was.early) + row_number() OVER (PARTITION BY came.lane ORDER BY came.place) AS nth
  FROM (SELECT lane, no, ARRAY[rank, logical_date, map_index, no] AS place FROM gone) came
  CROSS JOIN LATERAL (
    SELECT ARRAY[rank, logical_date, map_index, no] AS bound, early FROM sm.lane_use
    WHERE lane_use.digest = came.lane ORDER BY version DESC LIMIT 1) was
  WHERE came.place < was.bound AND came.no <> ALL (was.early)
),
old_lane_uses AS (DELETE FROM sm.lane_use WHERE ctid = ANY (ARRAY(SELECT at FROM lanes))),
lane_uses AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
  SELECT digest, nextval('sm.version'), ready, tasks, bound[1], bound[2], bound[3], bound[4], early
  FROM (
    SELECT digest, max(ready) AS ready, max(tasks) AS tasks,
      max(early) || array_agg(no) FILTER (WHERE nth <= 32) AS early,
      CASE WHEN bool_or(is_uncounted) THEN min(head) ELSE least(min(bound), min(place) FILTER (WHERE nth > 32)) END
        AS bound
    FROM (
      SELECT digest, ready, tasks, early, at IS NULL AS is_uncounted, head, bound, NULL::bigint AS no,
        NULL::bigint[] AS place, NULL::bigint AS nth
      FROM lanes
      UNION ALL
      SELECT digest, NULL, NULL, NULL, NULL, NULL, NULL, no, place, nth FROM before
    ) parts
    GROUP BY digest
  ) kept
),
left_early AS MATERIALIZED (SELECT no FROM early WHERE no NOT IN (SELECT no FROM early_free)),
passed AS MATERIALIZED (
  SELECT no, due, (SELECT count(*) FROM left_early) + row_number() OVER (ORDER BY due, no) AS nth
  FROM page WHERE no NOT IN (SELECT no FROM free) AND no NOT IN (SELECT no FROM left_early)
),
old_tick AS (
  DELETE FROM sm.tick
  WHERE no = ANY (ARRAY(SELECT no FROM last)) AND (EXISTS (SELECT FROM page) OR EXISTS (SELECT FROM early_free))
),
new_tick AS (
  INSERT INTO sm.tick (no, seen, due, early, many)
  SELECT last.no + 1, last.seen,
    greatest(last.due, coalesce(
      (SELECT min(due) FROM passed WHERE nth > 32),
      CASE WHEN (SELECT count(*) FROM page) < (SELECT most FROM room) THEN $1::bigint
        ELSE (SELECT max(due) FROM page) END)),
    ARRAY(SELECT no FROM left_early UNION ALL SELECT no FROM passed WHERE nth <= 32),
    last.many
  FROM last WHERE EXISTS (SELECT FROM page) OR EXISTS (SELECT FROM early_free)
)
SELECT count(*), CASE WHEN (SELECT many FROM last) THEN ARRAY(SELECT digest FROM lanes) END FROM gone
