-- Lanes by their first ready tasks, and which of them sleep: see lane_order. Callers hold the tick lock. These
-- functions write only if lanes are filed.

-- Returns the id of a node of lane_order. The name of the root, all queues, is ''.
CREATE FUNCTION sm._node(name TEXT) RETURNS UUID LANGUAGE sql STABLE PARALLEL SAFE AS
$$SELECT encode(substr(sha256(convert_to($1, 'UTF8')), 1, 16), 'hex')::uuid$$;

-- Returns the level and the turn of a share of a pool, from the counters. The arguments are pool, share and
-- level. See docs/admission.md.
CREATE FUNCTION sm._turn(TEXT, TEXT, BIGINT) RETURNS TABLE (turn BIGINT[]) LANGUAGE sql STABLE AS
$$SELECT CASE WHEN used.held > 0
  THEN ARRAY[$3, 1, div(least(used.held * 1048576::numeric + used.dither, 9223372036854775807),
    coalesce(CASE WHEN own.is_there THEN own.weight ELSE family.weight END, 1))::bigint, used.stamp]
  ELSE ARRAY[$3, 0, 0, coalesce(used.stamp, 2 * clock.grants)] END
FROM (SELECT grants FROM sm.share_clock ORDER BY grants DESC LIMIT 1) clock
LEFT JOIN LATERAL (
  SELECT held, stamp, dither FROM sm.share_use WHERE share_use.pool = $1 AND share_use.share = $2
  ORDER BY version DESC LIMIT 1) used ON true
LEFT JOIN LATERAL (SELECT true AS is_there, weight FROM sm.task_limit WHERE task_limit.key = $2 OFFSET 0) own ON true
LEFT JOIN LATERAL (
  SELECT weight FROM sm.family WHERE own.is_there IS NULL AND starts_with($2, prefix) AND prefix <> $2
  ORDER BY length(prefix) DESC LIMIT 1) family ON true$$;

-- Refiles the ancestors of these nodes by first task, level by level. Pass each node as it is now, or, if it
-- was deleted or moved, its old parent without a place. A node with nothing below it is deleted along with its
-- mark. A contender is filed with the current turn of its share.
CREATE FUNCTION sm._raise(changed sm.lane_order[]) RETURNS VOID LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  WHILE cardinality(changed) > 0 LOOP
    WITH
    -- Everything below a node is at or after its place, except what has just been added. A search from there
    -- passes no row that died since the node was filed.
    nodes AS MATERIALIZED (
      SELECT was.*, least(was.first, above.low) AS low_end
      FROM (
        SELECT parent, min(CASE WHEN first IS NOT NULL THEN coalesce(turn, first) END) FILTER (WHERE NOT sleeps) AS low
        FROM unnest(changed) child
        WHERE parent IS NOT NULL GROUP BY parent
      ) above
      CROSS JOIN LATERAL (
        SELECT ctid AS at, * FROM sm.lane_order WHERE lane_order.id = above.parent ORDER BY version DESC LIMIT 1) was
    ),
    found AS MATERIALIZED (
      SELECT nodes.*, below.first AS now_first, now.turn AS now_turn FROM nodes LEFT JOIN LATERAL (
        (SELECT first FROM sm.lane_order child
        WHERE nodes.share IS DISTINCT FROM '' AND child.parent = nodes.id
          AND NOT child.sleeps AND child.first >= nodes.low_end
        ORDER BY child.first LIMIT 1)
        UNION ALL
        (SELECT turn FROM sm.lane_order child
        WHERE nodes.share = '' AND child.parent = nodes.id AND child.turn IS NOT NULL AND child.first IS NOT NULL
          AND child.turn >= nodes.low_end
        ORDER BY child.turn LIMIT 1)) below ON true
      LEFT JOIN LATERAL (
        SELECT turn FROM sm._turn(nodes.about, nodes.share, nodes.turn[1]) WHERE nodes.turn IS NOT NULL) now ON true
      OFFSET 0
    ),
    filed AS MATERIALIZED (
      SELECT found.*, now_first IS NULL AND from_no IS NULL AND parent IS NOT NULL
        AND NOT EXISTS (SELECT FROM sm.lane_order child WHERE child.parent = found.id AND child.sleeps)
        AND NOT EXISTS (
          SELECT FROM sm.lane_order child WHERE child.parent = found.id AND NOT child.sleeps AND child.first IS NULL)
        AS is_empty
      FROM found WHERE now_first IS DISTINCT FROM first OR now_first IS NULL OR now_turn IS DISTINCT FROM turn
    ),
    old AS (
      DELETE FROM sm.lane_order
      WHERE ctid = ANY (ARRAY(
        SELECT at FROM filed WHERE is_empty OR now_first IS DISTINCT FROM first OR now_turn IS DISTINCT FROM turn))
    ),
    new AS (
      INSERT INTO sm.lane_order
        (id, version, parent, queue, about, first, from_no, sleeps, pool, needs, key, next, share, turn)
      SELECT id, nextval('sm.version'), parent, queue, about, now_first, from_no, sleeps, pool, needs, key, next, share,
        now_turn
      FROM filed
      WHERE NOT is_empty AND (now_first IS DISTINCT FROM first OR now_turn IS DISTINCT FROM turn)
      RETURNING *
    )
    SELECT array_agg(node) INTO changed FROM (
      SELECT new::sm.lane_order AS node FROM new
      UNION ALL
      SELECT (id, version, parent, queue, about, NULL, NULL, sleeps, NULL, NULL, NULL, NULL, NULL, NULL)::sm.lane_order FROM filed
      WHERE is_empty
    ) nodes;
  END LOOP;
END $$;

-- Files these lanes as they are now.
CREATE FUNCTION sm._file_lanes(digests UUID[]) RETURNS VOID LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  changed sm.lane_order[];
  listed sm.ready_lane[];
BEGIN
  WITH
  lanes AS MATERIALIZED (
    SELECT given.digest, lane.no, coalesce(lane.queue, 'default') AS queue, lane.pool, lane.slots, lane.limits, head.first,
      was.at, was.parent, was.first AS was_first, listed.no AS was_no, listed.queue AS was_queue,
      part.share, part.level
    FROM (SELECT DISTINCT digest FROM unnest(digests) given (digest)) given
    LEFT JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = given.digest OFFSET 0) lane ON true
    LEFT JOIN LATERAL (
      SELECT rank, logical_date, map_index, no, early FROM sm.lane_use WHERE lane_use.digest = lane.digest
      ORDER BY version DESC LIMIT 1) bound ON true
    LEFT JOIN LATERAL (
      SELECT min(place) AS first FROM (
        (SELECT ARRAY[rank, logical_date, map_index, no] AS place FROM sm.ready
        WHERE ready.lane = given.digest AND (rank, logical_date, map_index, no)
          >= (bound.rank, bound.logical_date, bound.map_index, bound.no)
        ORDER BY rank, logical_date, map_index, no LIMIT 1)
        UNION ALL
        SELECT ARRAY[ready.rank, ready.logical_date, ready.map_index, ready.no] FROM unnest(bound.early) early (no)
        CROSS JOIN LATERAL (
          SELECT rank, logical_date, map_index FROM sm.task WHERE task.no = early.no OFFSET 0) task
        CROSS JOIN LATERAL (
          SELECT rank, logical_date, map_index, no FROM sm.ready
          WHERE ready.lane = given.digest AND ready.rank = task.rank AND ready.logical_date = task.logical_date
            AND ready.map_index = task.map_index AND ready.no = early.no
          OFFSET 0) ready
      ) places
    ) head ON true
    LEFT JOIN LATERAL (
      SELECT ctid AS at, parent, first FROM sm.lane_order WHERE lane_order.id = given.digest
      ORDER BY version DESC LIMIT 1) was ON true
    LEFT JOIN LATERAL (
      SELECT share, level FROM sm._shares_of(lane.pool, lane.slots, lane.limits) part WHERE part.pool = lane.pool
    ) part ON true
    LEFT JOIN LATERAL (SELECT no, queue FROM sm.ready_lane WHERE ready_lane.digest = given.digest OFFSET 0) listed ON true
  ),
  filed AS MATERIALIZED (
    SELECT lanes.*, sm._node('queue ' || queue) AS queue_id, class.id AS class_id, class.about,
      CASE WHEN share IS NULL THEN class.id ELSE sm._node('share ' || class.id || ' ' || level || ' ' || share) END
        AS holder_id
    FROM lanes CROSS JOIN LATERAL (
      SELECT needs.about,
        sm._node(CASE WHEN lanes.share IS NULL THEN 'class ' ELSE 'shares ' END || needs.about || ' ' || lanes.queue) AS id
      FROM (
        SELECT json_agg(json_build_array(part.pool, part.slots))::text AS about
        FROM sm._pools_of(lanes.pool, lanes.slots, lanes.limits) part
      ) needs
      OFFSET 0) class
    WHERE first IS NOT NULL
  ),
  nodes AS MATERIALIZED (
    SELECT DISTINCT ON (id) id, parent, queue, about, share, level FROM (
      SELECT sm._node('') AS id, NULL::uuid AS parent, NULL AS queue, NULL AS about, NULL AS share, NULL::bigint AS level
      UNION ALL
      SELECT queue_id, sm._node(''), queue, NULL, NULL, NULL FROM filed
      UNION ALL
      SELECT class_id, CASE WHEN share IS NULL THEN queue_id ELSE sm._node('shares of ' || queue) END, queue, about,
        CASE WHEN share IS NOT NULL THEN '' END, NULL
      FROM filed WHERE parent IS NULL
      UNION ALL
      SELECT sm._node('group ' || holder_id), holder_id, queue, '', NULL, NULL FROM filed WHERE parent IS NULL
      UNION ALL
      SELECT sm._node('shares'), NULL, NULL, 'shares', NULL, NULL FROM filed WHERE parent IS NULL AND share IS NOT NULL
      UNION ALL
      SELECT sm._node('shares of ' || queue), sm._node('shares'), queue, 'shares', NULL, NULL
      FROM filed WHERE parent IS NULL AND share IS NOT NULL
      UNION ALL
      SELECT holder_id, class_id, queue, pool, share, level FROM filed WHERE parent IS NULL AND share IS NOT NULL
    ) node
  ),
  new_nodes AS (
    INSERT INTO sm.lane_order (id, version, parent, queue, about, share, turn)
    SELECT id, nextval('sm.version'), parent, queue, about, share, now.turn FROM nodes
    LEFT JOIN LATERAL (
      SELECT true AS is_there FROM sm.lane_order WHERE lane_order.id = nodes.id ORDER BY version DESC LIMIT 1) was ON true
    LEFT JOIN LATERAL (
      SELECT turn FROM sm._turn(nodes.about, nodes.share, nodes.level) WHERE nodes.level IS NOT NULL) now ON true
    WHERE is_there IS NULL
  ),
  old_lanes AS (
    DELETE FROM sm.lane_order WHERE ctid = ANY (ARRAY(SELECT at FROM lanes WHERE first IS DISTINCT FROM was_first))
  ),
  new_lanes AS (
    INSERT INTO sm.lane_order (id, version, parent, first)
    SELECT digest, nextval('sm.version'), coalesce(parent, sm._node('group ' || holder_id)), first FROM filed
    WHERE first IS DISTINCT FROM was_first
    RETURNING *
  ),
  old_listed AS (
    DELETE FROM sm.ready_lane WHERE no = ANY (ARRAY(SELECT was_no FROM lanes WHERE first IS NULL OR was_no <> no))
    RETURNING *
  ),
  new_listed AS (
    INSERT INTO sm.ready_lane (no, digest, queue)
    SELECT no, digest, queue FROM filed WHERE was_no IS DISTINCT FROM no
    RETURNING *
  )
  SELECT
    ARRAY(
      SELECT new_lanes::sm.lane_order FROM new_lanes
      UNION ALL
      SELECT (digest, 0, parent, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL)::sm.lane_order FROM lanes
      WHERE parent IS NOT NULL AND first IS NULL),
    ARRAY(SELECT old_listed::sm.ready_lane FROM old_listed UNION ALL SELECT new_listed::sm.ready_lane FROM new_listed)
  INTO changed, listed;
  IF cardinality(listed) > 0 THEN
    WITH
    nodes AS MATERIALIZED (
      SELECT was.*, least(was.from_no, lists.low) AS low_end
      FROM (
        SELECT sm._node('queue ' || queue) AS id, min(no) AS low FROM unnest(listed) lane GROUP BY queue
        UNION ALL
        SELECT sm._node(''), min(no) FROM unnest(listed) lane
      ) lists
      CROSS JOIN LATERAL (
        SELECT ctid AS at, * FROM sm.lane_order WHERE lane_order.id = lists.id ORDER BY version DESC LIMIT 1) was
    ),
    found AS MATERIALIZED (
      SELECT nodes.*, CASE WHEN nodes.queue IS NULL
        THEN (SELECT no FROM sm.ready_lane WHERE no >= nodes.low_end ORDER BY no LIMIT 1)
        ELSE (
          SELECT no FROM sm.ready_lane WHERE ready_lane.queue = nodes.queue AND no >= nodes.low_end ORDER BY no LIMIT 1)
        END AS now_from
      FROM nodes
    ),
    old AS (
      DELETE FROM sm.lane_order
      WHERE ctid = ANY (ARRAY(SELECT at FROM found WHERE now_from IS DISTINCT FROM from_no))
    )
    INSERT INTO sm.lane_order (id, version, parent, queue, first, from_no)
    SELECT id, nextval('sm.version'), parent, queue, first, now_from FROM found
    WHERE now_from IS DISTINCT FROM from_no AND (now_from IS NOT NULL OR first IS NOT NULL OR parent IS NULL);
  END IF;
  PERFORM sm._raise(changed);
END $$;

-- Removes the marks of these nodes.
CREATE FUNCTION sm._wake_nodes(ids UUID[]) RETURNS VOID LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  changed sm.lane_order[];
BEGIN
  WITH
  marked AS MATERIALIZED (
    SELECT was.* FROM (SELECT DISTINCT id FROM unnest(ids) given (id)) given CROSS JOIN LATERAL (
      SELECT ctid AS at, * FROM sm.lane_order WHERE lane_order.id = given.id ORDER BY version DESC LIMIT 1) was
    WHERE was.sleeps
  ),
  old AS (DELETE FROM sm.lane_order WHERE ctid = ANY (ARRAY(SELECT at FROM marked))),
  new AS (
    INSERT INTO sm.lane_order (id, version, parent, queue, about, first, from_no, share)
    SELECT id, nextval('sm.version'), parent, queue, about, first, from_no, share FROM marked
    RETURNING *
  )
  SELECT array_agg(new::sm.lane_order) INTO changed FROM new;
  PERFORM sm._raise(changed);
END $$;

-- Files the contenders of these shares by their current turns. One array per column: pool, share.
CREATE FUNCTION sm._file_turns(pools TEXT[], shares TEXT[]) RETURNS VOID LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  changed sm.lane_order[];
BEGIN
  WITH
  turned AS MATERIALIZED (
    SELECT was.*, now.turn AS now_turn
    FROM (SELECT DISTINCT pool, share FROM unnest(pools, shares) given (pool, share)) given
    CROSS JOIN LATERAL (
      SELECT ctid AS at, * FROM sm.lane_order node
      WHERE node.share = given.share AND node.about = given.pool AND node.turn IS NOT NULL OFFSET 0) was
    CROSS JOIN LATERAL sm._turn(was.about, was.share, was.turn[1]) now
    WHERE now.turn <> was.turn
  ),
  old AS (DELETE FROM sm.lane_order WHERE ctid = ANY (ARRAY(SELECT at FROM turned))),
  new AS (
    INSERT INTO sm.lane_order (id, version, parent, queue, about, first, share, turn)
    SELECT id, nextval('sm.version'), parent, queue, about, first, share, now_turn FROM turned
    RETURNING *
  )
  SELECT array_agg(new::sm.lane_order) INTO changed FROM new;
  PERFORM sm._raise(changed);
END $$;

-- Files the changes of a fold, a promotion or a grant: lanes with their shares, pools with more open slots,
-- keys against which less counts, and shares. One array per column. NULL changes nothing.
CREATE FUNCTION sm._file(digests UUID[], pools TEXT[], keys TEXT[], share_pools TEXT[], shares TEXT[]) RETURNS VOID
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  ids UUID[];
  pairs RECORD;
BEGIN
  PERFORM sm._file_lanes(digests) WHERE cardinality(digests) > 0;
  IF EXISTS (SELECT FROM sm.share_use) THEN
    SELECT array_agg(pool) AS pools, array_agg(share) AS shares INTO pairs FROM (
      SELECT * FROM unnest(share_pools, shares) given (pool, share)
      UNION ALL
      SELECT part.pool, part.share FROM unnest(digests) given (digest)
      CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.digest = given.digest OFFSET 0) lane
      CROSS JOIN LATERAL sm._shares_of(lane.pool, lane.slots, lane.limits) part
    ) changed;
    PERFORM sm._file_turns(pairs.pools, pairs.shares) WHERE cardinality(pairs.shares) > 0;
  END IF;
  SELECT array_agg(id) INTO ids FROM (
    SELECT marked.id FROM unnest(pools) given (name)
    CROSS JOIN LATERAL (
      SELECT slots - coalesce((
        SELECT used FROM sm.pool_use WHERE pool_use.name = given.name ORDER BY version DESC LIMIT 1), 0) AS open
      FROM sm.pool WHERE pool.name = given.name OFFSET 0) pool
    CROSS JOIN LATERAL (
      SELECT id FROM sm.lane_order
      WHERE lane_order.pool = given.name AND lane_order.needs <= coalesce(pool.open, 9223372036854775807) OFFSET 0) marked
    UNION ALL
    SELECT marked.id FROM unnest(keys) given (name)
    CROSS JOIN LATERAL (SELECT id FROM sm.lane_order WHERE lane_order.key = given.name OFFSET 0) marked
  ) marks;
  PERFORM sm._wake_nodes(ids) WHERE cardinality(ids) > 0;
END $$;

-- Removes expired marks of these queues, or of all if NULL: at most `most`, earliest first. A mark has expired
-- at `now`, or at the latest instant at which a key took a token.
CREATE FUNCTION sm._wake_by(now BIGINT, most BIGINT, queues TEXT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  clock BIGINT;
  ids UUID[];
BEGIN
  clock := greatest(now, (SELECT at FROM sm.rate_use ORDER BY at DESC LIMIT 1));
  IF queues IS NULL THEN
    SELECT array_agg(id) INTO ids FROM (
      SELECT id FROM sm.lane_order WHERE next <= clock ORDER BY next LIMIT most) marks;
  ELSE
    SELECT array_agg(id) INTO ids FROM (
      SELECT mark.id FROM unnest(queues) asked (name) CROSS JOIN LATERAL (
        SELECT id, next FROM sm.lane_order WHERE lane_order.queue = asked.name AND next <= clock ORDER BY next LIMIT most
      ) mark
      ORDER BY mark.next LIMIT most) marks;
  END IF;
  PERFORM sm._wake_nodes(ids) WHERE cardinality(ids) > 0;
END $$;

-- Removes all marks, and computes all turns again.
CREATE FUNCTION sm._wake_all() RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT many FROM sm.tick ORDER BY no DESC LIMIT 1) THEN
    PERFORM sm._wake_nodes(ARRAY(SELECT id FROM sm.lane_order WHERE sleeps));
    -- The changed definition may have been a weight.
    PERFORM sm._file_turns(array_agg(about), array_agg(share)) FROM sm.lane_order WHERE turn IS NOT NULL;
  END IF;
END $$;

-- Makes marks, and returns the nodes that have them now. One array per column, with a lane for each mark: the
-- pool that is too full for its class, or NULL; the cause that refuses its group, a JSON object, or NULL if its
-- class is marked; the limit key that the group waits for, or NULL; and when the mark expires, or NULL.
CREATE FUNCTION sm._mark(lanes UUID[], pools TEXT[], causes TEXT[], keys TEXT[], nexts BIGINT[]) RETURNS UUID[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  changed sm.lane_order[];
  marked UUID[];
BEGIN
  -- Lanes refused by another cause move to the group of that cause.
  WITH
  moved AS MATERIALIZED (
    SELECT was.*, class.parent AS class_id, class.queue AS of_queue, given.cause,
      sm._node('group ' || class.parent || given.cause) AS group_id
    FROM (SELECT lane, max(cause) AS cause FROM unnest(lanes, causes) given (lane, cause) GROUP BY lane) given
    CROSS JOIN LATERAL (
      SELECT ctid AS at, * FROM sm.lane_order WHERE lane_order.id = given.lane ORDER BY version DESC LIMIT 1) was
    CROSS JOIN LATERAL (
      SELECT parent, queue FROM sm.lane_order WHERE lane_order.id = was.parent ORDER BY version DESC LIMIT 1) class
    WHERE given.cause IS NOT NULL
  ),
  new_groups AS (
    INSERT INTO sm.lane_order (id, version, parent, queue, about)
    SELECT id, nextval('sm.version'), class_id, queue, cause FROM (
      SELECT DISTINCT group_id AS id, class_id, of_queue AS queue, cause FROM moved) node
    LEFT JOIN LATERAL (
      SELECT true AS is_there FROM sm.lane_order WHERE lane_order.id = node.id ORDER BY version DESC LIMIT 1) was ON true
    WHERE is_there IS NULL
  ),
  old_lanes AS (
    DELETE FROM sm.lane_order WHERE ctid = ANY (ARRAY(SELECT at FROM moved WHERE group_id <> parent))
  ),
  new_lanes AS (
    INSERT INTO sm.lane_order (id, version, parent, first)
    SELECT id, nextval('sm.version'), group_id, first FROM moved WHERE group_id <> parent
    RETURNING *
  )
  SELECT ARRAY(
    SELECT new_lanes::sm.lane_order FROM new_lanes
    UNION ALL
    SELECT (id, version, parent, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL)::sm.lane_order FROM moved
    WHERE group_id <> parent) INTO changed;
  PERFORM sm._raise(changed);
  WITH
  given AS MATERIALIZED (
    SELECT node.id, given.*, of_lane.pool AS of_pool, of_lane.slots, of_lane.limits
    FROM unnest(lanes, pools, causes, keys, nexts) given (lane, pool, cause, key, next)
    CROSS JOIN LATERAL (
      SELECT parent FROM sm.lane_order WHERE lane_order.id = given.lane ORDER BY version DESC LIMIT 1) was
    CROSS JOIN LATERAL (
      SELECT pool, slots, limits, coalesce(queue, 'default') AS queue FROM sm.lane WHERE lane.digest = given.lane OFFSET 0
    ) of_lane
    CROSS JOIN LATERAL (
      SELECT json_agg(json_build_array(part.pool, part.slots))::text AS about
      FROM sm._pools_of(of_lane.pool, of_lane.slots, of_lane.limits) part
      OFFSET 0) class
    -- A class has two nodes: one for lanes of shares, one for the others.
    CROSS JOIN LATERAL (
      SELECT was.parent AS id WHERE given.cause IS NOT NULL
      UNION ALL
      SELECT sm._node(kind || class.about || ' ' || of_lane.queue) FROM unnest(ARRAY['class ', 'shares ']) kinds (kind)
      WHERE given.cause IS NULL
    ) node
  ),
  marks AS MATERIALIZED (
    SELECT was.id, was.at, was.parent, was.queue, was.about, was.first, was.share, mark.pool, mark.key, mark.next, (
        SELECT part.slots FROM sm._pools_of(mark.of_pool, mark.slots, mark.limits) part WHERE part.pool = mark.pool
      ) AS needs
    FROM (SELECT DISTINCT ON (id) * FROM given ORDER BY id, next) mark
    CROSS JOIN LATERAL (
      SELECT ctid AS at, * FROM sm.lane_order WHERE lane_order.id = mark.id ORDER BY version DESC LIMIT 1) was
  ),
  old AS (DELETE FROM sm.lane_order WHERE ctid = ANY (ARRAY(SELECT at FROM marks))),
  new AS (
    INSERT INTO sm.lane_order (id, version, parent, queue, about, first, sleeps, pool, needs, key, next, share)
    SELECT id, nextval('sm.version'), parent, queue, about, first, true, pool, needs, key, next, share FROM marks
    RETURNING *
  )
  SELECT array_agg(new::sm.lane_order), array_agg(id) INTO changed, marked FROM new;
  PERFORM sm._raise(changed);
  RETURN marked;
END $$;

-- Files all lanes again, or, if not `many`, stops filing lanes.
CREATE FUNCTION sm._file_all(many BOOLEAN) RETURNS VOID LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  last sm.tick;
BEGIN
  DELETE FROM sm.lane_order;
  DELETE FROM sm.ready_lane;
  SELECT * INTO last FROM sm.tick ORDER BY no DESC LIMIT 1;
  IF last.many <> many THEN
    DELETE FROM sm.tick WHERE tick.no = last.no;
    INSERT INTO sm.tick (no, seen, due, early, many) VALUES (last.no + 1, last.seen, last.due, last.early, many);
  END IF;
  IF many THEN
    PERFORM sm._file_lanes(ARRAY(SELECT digest FROM sm.lane));
  END IF;
END $$;
