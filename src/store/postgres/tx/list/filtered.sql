-- Returns the tasks that were seen and match, and the last one that may be looked at. The changing columns of a
-- task are in exactly one of three tables.
WITH seen AS (
  {seen}
)
SELECT seen.no, fits.fits, seen.nth, seen.lane::text, seen.a, seen.b, seen.c, seen.d, seen.t, seen.u, seen.v
FROM (SELECT *, row_number() OVER () AS nth FROM seen) seen
CROSS JOIN LATERAL (
  SELECT ($3::bigint >> stands.state::integer) & 1 = 1
    AND ($4::text IS NULL OR task.namespace = $4::text)
    AND ($5::text IS NULL OR task.workflow = $5::text)
    AND ($6::text IS NULL OR task.run = $6::text)
    AND ($7::text IS NULL OR coalesce(task.queue, 'default') = $7::text)
    AND ($8::text IS NULL OR EXISTS (SELECT FROM sm._pools_of(task.pool, task.slots, task.limits) part WHERE part.pool = $8::text))
    AND ($9::text IS NULL OR EXISTS (SELECT FROM sm._carried(task.limits) carried WHERE carried.key = $9::text))
    AND ($10::text IS NULL OR coalesce(stands.holder = $10::text, false))
    AND ($11::bigint IS NULL OR coalesce(stands.due >= $11::bigint, false))
    AND ($12::bigint IS NULL OR coalesce(stands.due < $12::bigint, false))
    AND ($13::bigint IS NULL OR coalesce(stands.ended_at >= $13::bigint, false)) AS fits
  FROM (SELECT * FROM sm.task WHERE task.no = seen.no OFFSET 0) task
  CROSS JOIN LATERAL (
    SELECT 0::bigint AS state, NULL::bigint AS due, ended_at, NULL::text AS holder
    FROM sm.ready
    WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
      AND ready.map_index = task.map_index AND ready.no = task.no
    UNION ALL
    SELECT 1 + started, NULL, ended_at, holder FROM sm.lease WHERE lease.no = task.no
    UNION ALL
    SELECT state, due, ended_at, NULL FROM sm.idle WHERE idle.no = task.no
    OFFSET 0
  ) stands
  OFFSET 0
) fits
WHERE fits.fits OR seen.nth = $2::bigint
LIMIT $1::bigint
