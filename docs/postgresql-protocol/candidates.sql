-- $1..$6 of each lane: its digest, the place where its page begins, how many. $7, $8 its early tasks: lane
-- and number; one may be on the page, too. This is the form of the second plan: what somebody else has locked
-- is absent from it. The first plan uses the same text with OFFSET 0 instead of both locking clauses.
SELECT page.lane, ready.*
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
  page (lane, from_rank, from_date, from_index, from_no, most)
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
  WHERE ready.lane = page.lane AND (rank, logical_date, map_index, no) >= (from_rank, from_date, from_index, from_no)
  ORDER BY rank, logical_date, map_index, no LIMIT page.most
  FOR UPDATE SKIP LOCKED) ready
UNION ALL
SELECT early.lane, ready.*
FROM unnest($7::uuid[], $8::bigint[]) early (lane, no)
CROSS JOIN LATERAL (SELECT rank, logical_date, map_index FROM sm.task WHERE task.no = early.no OFFSET 0) task
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
  WHERE ready.lane = early.lane AND ready.rank = task.rank AND ready.logical_date = task.logical_date
    AND ready.map_index = task.map_index AND ready.no = early.no
  FOR UPDATE SKIP LOCKED) ready
