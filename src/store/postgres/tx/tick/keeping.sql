-- Returns ready tasks that still hold slots which they kept, from each page's place on. The first column is the
-- place of the page, counted from 1.
-- lock: whether rows are locked. Those locked by other transactions are then skipped.
-- $1 to $6: one array per column of the pages: lane, place (rank, logical date, map index, number), how many.
SELECT page.place, page.lane, idle.rank, idle.logical_date, idle.map_index, idle.no, idle.ready_at
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
  WITH ORDINALITY page (lane, from_rank, from_date, from_index, from_no, most, place)
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index, no, ready_at FROM sm.idle
  WHERE idle.lane = page.lane AND due IS NULL AND rank IS NOT NULL
    AND (rank, logical_date, map_index, no) >= (from_rank, from_date, from_index, from_no)
  ORDER BY rank, logical_date, map_index, no LIMIT page.most
  {lock}) idle
