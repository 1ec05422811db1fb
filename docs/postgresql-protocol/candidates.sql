-- One page a lane, from its bound or after a place. The second form of the statement ends the inner SELECT with
-- FOR NO KEY UPDATE SKIP LOCKED: what somebody else has locked is then absent from the plan.
SELECT page.lane, ready.*, place
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
WITH ORDINALITY page (lane, after_rank, after_date, after_index, after_no, most, place)
CROSS JOIN LATERAL (
  SELECT rank, logical_date, map_index, no, ready_at FROM sm.ready
  WHERE ready.lane = page.lane AND (rank, logical_date, map_index, no) > (after_rank, after_date, after_index, after_no)
  ORDER BY rank, logical_date, map_index, no LIMIT page.most
  FOR NO KEY UPDATE SKIP LOCKED) ready
