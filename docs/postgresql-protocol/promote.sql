-- $1 now, $2 the tick's name or NULL, $3 how many. A row that somebody else has locked is passed over.
WITH last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1),
due AS MATERIALIZED (
  SELECT idle.no FROM sm.idle CROSS JOIN last
  WHERE idle.due IS NOT NULL AND idle.due >= last.due AND idle.due <= $1::bigint
  ORDER BY idle.due, idle.rank, idle.logical_date, idle.map_index, idle.no LIMIT $2::bigint
  FOR NO KEY UPDATE OF idle SKIP LOCKED
),
gone AS (DELETE FROM sm.idle WHERE no = ANY (ARRAY(SELECT no FROM due)) RETURNING idle.*),
ready AS (
  INSERT INTO sm.ready (lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value)
  SELECT lane, rank, logical_date, map_index, no, ready_at, epoch, attempt, forgiven, lost, queued_at,
    first_started_at, started_at, ended_at, finished, message, value FROM gone
),
more AS MATERIALIZED (
  SELECT gone.lane AS digest, count(*) AS ready, min(ARRAY[gone.rank, gone.logical_date, gone.map_index, gone.no]) AS head
  FROM gone GROUP BY gone.lane
),
was AS MATERIALIZED (
  SELECT was.*, more.ready AS more, least(ARRAY[was.rank, was.logical_date, was.map_index, was.no], more.head) AS head
  FROM more CROSS JOIN LATERAL (SELECT * FROM sm.lane_use WHERE lane_use.digest = more.digest ORDER BY version DESC LIMIT 1) was
),
old AS (DELETE FROM sm.lane_use USING was WHERE lane_use.digest = was.digest AND lane_use.version = was.version),
new AS (
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no)
  SELECT digest, nextval('sm.version'), ready + more, tasks, head[1], head[2], head[3], head[4] FROM was
)
SELECT count(*), (SELECT count(*) FROM more) - (SELECT count(*) FROM was) AS damaged FROM gone
