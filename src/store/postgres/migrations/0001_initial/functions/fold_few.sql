-- Does what fold.sql does if there are only a few deltas and none of their lanes carries limits. It sets up
-- only the plans that it needs, because setting up plans is most of the cost of a short fold. Returns the same,
-- or NULLs if fold.sql must do the work; then nothing was written. Also returns the earliest instant that a
-- task waits for, for the survey that follows. is_sure is false if tasks may wait for an earlier one.
-- leaves: if all deltas are of one lane, its counter, and that of its pool if slots came back, are only
-- returned, because the calling tick changes them too. left_lane and left_needs are then set. The previous
-- versions are deleted.
-- own: a delta of the calling tick that is not in the table, or NULL.
CREATE FUNCTION sm._fold_few(leaves BOOLEAN, own sm.delta, OUT count BIGINT, OUT whole BOOLEAN, OUT damage TEXT[],
  OUT next_due BIGINT, OUT is_sure BOOLEAN, OUT left_lane UUID, OUT left_needs sm.lane, OUT left_ready BIGINT,
  OUT left_tasks BIGINT, OUT left_bound BIGINT[], OUT left_early BIGINT[], OUT left_used BIGINT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  most CONSTANT BIGINT := 16;
  most_early CONSTANT BIGINT := 32;
  last RECORD;
  deltas sm.delta[];
  places TID[];
  noticed TXID_SNAPSHOT;
  digests UUID[] := '{}';
  one_digest UUID;
  lanes sm.lane[];
  one sm.delta;
  lane sm.lane;
  needs sm.lane;
  use sm.lane_use;
  was_counted BOOLEAN;
  place BIGINT[];
  bound BIGINT[];
  given_back BIGINT;
  was_used BIGINT;
  earliest BIGINT;
  own_xid BIGINT;
BEGIN
  -- As in fold.sql: the recorded snapshot is useless if it is from another server, and a partial fold may have
  -- left lanes empty. If lanes are filed, each changed lane must be refiled.
  -- Each statement of a function has its own snapshot. The snapshot of the first one is recorded as seen. The
  -- second may find more deltas, which the next fold then no longer finds.
  SELECT was.*, found.deltas, found.places, txid_current_snapshot() AS noticed INTO last
  FROM (
    SELECT no, due, early, many, CASE WHEN txid_snapshot_xmax(seen) <= txid_snapshot_xmax(txid_current_snapshot())
      AND (xmin::text::bigint - txid_snapshot_xmax(seen)) & 4294967295 < 2147483648 THEN seen
      ELSE '1:1:'::txid_snapshot END AS seen, EXISTS (SELECT FROM sm.lane_use WHERE tasks = 0 AND ready = 0) AS has_empty
    FROM sm.tick ORDER BY no DESC LIMIT 1
  ) was CROSS JOIN LATERAL (
    SELECT array_agg(delta) AS deltas, array_agg(at) AS places FROM (
      SELECT delta, ctid AS at FROM sm.delta WHERE xid >= txid_snapshot_xmax(was.seen)
      ORDER BY xid, id LIMIT most + 1) first
  ) found;
  IF last.has_empty IS NOT FALSE OR last.many THEN
    RETURN;
  END IF;
  deltas := last.deltas;
  places := last.places;
  noticed := last.noticed;
  IF split_part(last.seen::text, ':', 3) <> '' THEN
    SELECT deltas || array_agg(found.delta), places || array_agg(found.at) INTO deltas, places
    FROM (
      SELECT found.* FROM txid_snapshot_xip(last.seen) late (xid) CROSS JOIN LATERAL (
        SELECT delta, ctid AS at FROM sm.delta WHERE delta.xid = late.xid OFFSET 0) found
      LIMIT most + 1
    ) found;
  END IF;
  IF cardinality(deltas) > most THEN
    RETURN;
  END IF;
  IF own.lane IS NOT NULL THEN
    deltas := deltas || own;
  END IF;
  whole := true;
  damage := '{}';
  is_sure := last.early = '{}';
  earliest := last.due;
  IF deltas IS NULL AND last.seen::text <> '1:1:' THEN
    count := 0;
    SELECT due INTO next_due FROM sm.idle WHERE due >= earliest ORDER BY due LIMIT 1;
    RETURN;
  END IF;
  deltas := coalesce(deltas, '{}');
  FOREACH one IN ARRAY deltas LOOP
    IF one.limits <> '[]' THEN
      RETURN;
    ELSIF one.lane <> ALL (digests) THEN
      digests := digests || one.lane;
    END IF;
  END LOOP;
  lanes := ARRAY(SELECT lane FROM sm.lane WHERE digest = ANY (digests));
  FOREACH lane IN ARRAY lanes LOOP
    IF lane.limits <> '[]' THEN
      RETURN;
    END IF;
  END LOOP;
  IF places IS NOT NULL THEN
    DELETE FROM sm.delta WHERE ctid = ANY (places);
  END IF;
  FOREACH one_digest IN ARRAY digests LOOP
    lane := NULL;
    FOREACH needs IN ARRAY lanes LOOP
      IF needs.digest = one_digest THEN
        lane := needs;
      END IF;
    END LOOP;
    DELETE FROM sm.lane_use WHERE ctid = (
      SELECT ctid FROM sm.lane_use WHERE digest = one_digest ORDER BY version DESC LIMIT 1)
    RETURNING * INTO use;
    was_counted := FOUND;
    bound := CASE WHEN was_counted THEN ARRAY[use.rank, use.logical_date, use.map_index, use.no] END;
    use.ready := coalesce(use.ready, 0);
    use.tasks := coalesce(use.tasks, 0);
    use.early := coalesce(use.early, '{}');
    needs := NULL;
    given_back := 0;
    FOREACH one IN ARRAY deltas LOOP
      CONTINUE WHEN one.lane <> one_digest;
      use.ready := use.ready + one.ready;
      use.tasks := use.tasks + one.tasks;
      given_back := given_back + one.slots;
      earliest := least(earliest, one.due);
      IF one.pool IS NOT NULL THEN
        needs := (one_digest, least(needs.no, one.first), one.lane_slots, one.pool, one.limits, one.queue);
      END IF;
      IF one.came > 0 THEN
        place := ARRAY[one.rank, one.logical_date, one.map_index, one.no];
        -- A task that became ready alone and is before the bound is remembered; for the others the bound is
        -- lowered.
        IF NOT was_counted OR place < bound AND (one.came > 1
          OR cardinality(use.early) >= most_early AND one.no <> ALL (use.early)) THEN
          bound := least(bound, place);
        ELSIF place < bound AND one.no <> ALL (use.early) THEN
          use.early := use.early || one.no;
        END IF;
      END IF;
    END LOOP;
    IF needs.digest IS NULL AND lane.digest IS NULL
      OR needs.digest IS NOT NULL AND lane.digest IS NOT NULL
        AND (lane.pool, lane.slots, lane.limits, coalesce(lane.queue, ''))
          <> (needs.pool, needs.slots, needs.limits, coalesce(needs.queue, '')) THEN
      damage := damage || ('lane ' || one_digest);
    END IF;
    IF use.tasks <> 0 OR use.ready <> 0 THEN
      IF lane.digest IS NULL AND needs.digest IS NOT NULL THEN
        INSERT INTO sm.lane (digest, no, slots, pool, limits, queue)
        VALUES (one_digest, needs.no, needs.slots, needs.pool, needs.limits, needs.queue);
      END IF;
      bound := coalesce(bound, ARRAY[-9223372036854775808, -9223372036854775808, -9223372036854775808, -9223372036854775808]);
      IF leaves AND cardinality(digests) = 1 THEN
        left_lane := one_digest;
        left_needs := CASE WHEN lane.digest IS NULL THEN needs ELSE lane END;
        left_ready := use.ready;
        left_tasks := use.tasks;
        left_bound := bound;
        left_early := use.early;
      ELSE
        INSERT INTO sm.lane_use (digest, version, ready, tasks, rank, logical_date, map_index, no, early)
        VALUES (one_digest, nextval('sm.version'), use.ready, use.tasks, bound[1], bound[2], bound[3], bound[4], use.early);
      END IF;
    ELSIF lane.digest IS NOT NULL THEN
      DELETE FROM sm.lane WHERE digest = one_digest;
    END IF;
    IF given_back > 0 THEN
      DELETE FROM sm.pool_use WHERE ctid = (
        SELECT ctid FROM sm.pool_use WHERE name = coalesce(lane.pool, needs.pool) ORDER BY version DESC LIMIT 1)
      RETURNING used INTO was_used;
      IF NOT FOUND OR was_used < given_back THEN
        damage := damage || ('pool ' || coalesce(lane.pool, needs.pool));
      ELSIF left_lane IS NOT NULL THEN
        left_used := was_used - given_back;
      ELSIF was_used > given_back THEN
        INSERT INTO sm.pool_use (name, version, used)
        VALUES (coalesce(lane.pool, needs.pool), nextval('sm.version'), was_used - given_back);
      END IF;
    END IF;
  END LOOP;
  -- As in fold.sql: the recorded snapshot ends at this transaction's number.
  own_xid := txid_current();
  IF own_xid < txid_snapshot_xmax(noticed) THEN
    noticed := concat(least(own_xid, txid_snapshot_xmin(noticed)), ':', own_xid, ':', (
      SELECT string_agg(open.xid::text, ',' ORDER BY open.xid)
      FROM txid_snapshot_xip(noticed) open (xid) WHERE open.xid < own_xid))::txid_snapshot;
  END IF;
  -- The key changes, so this leaves what a deletion and an insertion leave.
  UPDATE sm.tick SET no = no + 1, seen = noticed, due = earliest WHERE no = last.no;
  count := cardinality(deltas);
  SELECT due INTO next_due FROM sm.idle WHERE due >= earliest ORDER BY due LIMIT 1;
END $$;
