-- Returns the ready tasks of lanes: those of each page, from its place on, and those of the early tasks that
-- are ready. The first column is the place of the page, counted from 1, or NULL for an early task. An early
-- task may also be on the page.
-- lock: whether rows are locked. Those locked by other transactions are then skipped.
-- $1 to $6: one array per column of the pages: lane, place (rank, logical date, map index, number), how many.
-- $7, $8: the early tasks: lane and number.
SELECT page.place, page.lane, ready.rank, ready.logical_date, ready.map_index, ready.no, ready.ready_at
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
  WITH ORDINALITY page (lane, from_rank, from_date, from_index, from_no, most, place)
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
  WHERE ready.lane = page.lane
    AND (rank, logical_date, map_index, no) >= (from_rank, from_date, from_index, from_no)
  ORDER BY rank, logical_date, map_index, no LIMIT page.most
  {lock}) ready
UNION ALL
SELECT NULL, early.lane, ready.rank, ready.logical_date, ready.map_index, ready.no, ready.ready_at
FROM unnest($7::uuid[], $8::bigint[]) early (lane, no)
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index FROM sm.task WHERE task.no = early.no OFFSET 0) task
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
  WHERE ready.lane = early.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
    AND ready.map_index = task.map_index AND ready.no = early.no
  {lock}) ready
