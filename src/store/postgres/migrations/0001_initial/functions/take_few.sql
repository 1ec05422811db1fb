-- Does the counting of grant.sql after grant_few.sql, for tasks of one lane without limits that must all have
-- been granted. It fails (22012) if they were not, if their pool lacks room, or if their lane has no counter.
-- lane_bound, lane_early: the lane's new bound and early tasks; both empty to keep the current ones. tick,
-- replaced: the names of the tick and of the one that it replaces, or NULL. Afterwards it deletes ticks from
-- before an instant, earliest first and at most at_most, and returns how many. It does what forget_requests.sql
-- does if the number of ticks does not matter.
CREATE FUNCTION sm._take_few(nos BIGINT[], of_lane UUID, lane_bound BIGINT[], lane_early BIGINT[], now BIGINT, tick TEXT,
  replaced TEXT, before BIGINT, at_most BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  new_epochs BIGINT[];
  needs RECORD;
  use sm.lane_use;
  now_used BIGINT;
  forgotten BIGINT := 0;
BEGIN
  SELECT array_agg(lease.epoch ORDER BY given.place) INTO new_epochs
  FROM unnest(nos) WITH ORDINALITY given (no, place)
  CROSS JOIN LATERAL (SELECT epoch FROM sm.lease WHERE lease.no = given.no AND lease.lane = of_lane OFFSET 0) lease;
  SELECT lane.pool, lane.slots, pool.name, pool.slots AS most INTO needs FROM sm.lane
  LEFT JOIN LATERAL (SELECT name, slots FROM sm.pool WHERE pool.name = lane.pool OFFSET 0) pool ON true
  WHERE lane.digest = of_lane;
  DELETE FROM sm.lane_use WHERE ctid = (
    SELECT ctid FROM sm.lane_use WHERE digest = of_lane ORDER BY version DESC LIMIT 1) RETURNING * INTO use;
  DELETE FROM sm.pool_use WHERE ctid = (
    SELECT ctid FROM sm.pool_use WHERE name = needs.pool ORDER BY version DESC LIMIT 1) RETURNING used INTO now_used;
  now_used := coalesce(now_used, 0) + cardinality(nos) * needs.slots;
  IF cardinality(new_epochs) IS DISTINCT FROM cardinality(nos) OR use.digest IS NULL OR needs.name IS NULL
    OR now_used > needs.most THEN
    RAISE division_by_zero;
  END IF;
  IF cardinality(lane_bound) > 0 THEN
    use.early := lane_early;
  END IF;
  INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
  VALUES (of_lane, nextval('sm.version'), use.ready - cardinality(nos), use.tasks, coalesce(lane_bound[1], use.rank),
    coalesce(lane_bound[2], use.logical_date), coalesce(lane_bound[3], use.map_index), coalesce(lane_bound[4], use.no),
    use.early);
  INSERT INTO sm.pool_use (name, version, used) VALUES (needs.pool, nextval('sm.version'), now_used);
  IF replaced <> tick THEN
    DELETE FROM sm.request WHERE id = replaced;
  END IF;
  IF tick IS NOT NULL THEN
    INSERT INTO sm.request (id, at, nos, epochs) VALUES (tick, now, nos, new_epochs)
    ON CONFLICT (id) DO UPDATE SET at = excluded.at, nos = excluded.nos, epochs = excluded.epochs;
  END IF;
  IF at_most > 0 AND EXISTS (SELECT FROM sm.request WHERE at < before) THEN
    DELETE FROM sm.request WHERE id = ANY (ARRAY(
      SELECT id FROM sm.request WHERE at < before ORDER BY at, id LIMIT at_most));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
  END IF;
  RETURN forgotten;
END $$;
