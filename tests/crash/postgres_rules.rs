//! What must hold in every committed state of the PostgreSQL store, in plain SQL that counts what breaks it.
//! Counters are right with the deltas that are not folded yet.

pub const RULES: &[(&str, &str)] = &[
    (
        "a pool's counter is below what is held",
        "SELECT count(*) FROM (SELECT task.pool, sum(held.slots) AS slots FROM (SELECT no, slots FROM sm.lease
             UNION ALL SELECT no, slots FROM sm.idle WHERE slots IS NOT NULL) held JOIN sm.task USING (no) GROUP BY 1) held
         LEFT JOIN sm.pool_use ON name = pool WHERE coalesce(used, 0) < slots",
    ),
    (
        "a pool's counter without what is given back is not what is held",
        "SELECT count(*) FROM (SELECT pool, sum(slots) FROM (
             SELECT name AS pool, used AS slots FROM sm.pool_use
             UNION ALL SELECT needs.pool, -delta.slots FROM sm.delta
                 JOIN (SELECT DISTINCT lane, pool FROM sm.task) needs ON needs.lane = delta.lane
             UNION ALL SELECT pool, -lease.slots FROM sm.lease JOIN sm.task USING (no)
             UNION ALL SELECT pool, -idle.slots FROM sm.idle JOIN sm.task USING (no) WHERE idle.slots IS NOT NULL
         ) all_of_it GROUP BY pool HAVING sum(slots) <> 0) wrong",
    ),
    (
        "a pool is oversubscribed",
        "SELECT count(*) FROM (SELECT pool, sum(lease.slots) AS slots FROM sm.lease JOIN sm.task USING (no) GROUP BY 1) held
         JOIN sm.pool ON pool.name = held.pool WHERE held.slots > pool.slots",
    ),
    (
        "a limit's counter without what is given back is not the number of its leases, or above the maximum",
        "SELECT count(*) FROM (SELECT key, sum(leases) FROM (
             SELECT key, used AS leases FROM sm.limit_use
             UNION ALL SELECT k.key, -delta.leases FROM sm.delta
                 JOIN (SELECT DISTINCT lane, limits FROM sm.task) needs ON needs.lane = delta.lane,
                 json_array_elements_text(needs.limits::json) k (key)
             UNION ALL SELECT k.key, -1 FROM sm.lease JOIN sm.task USING (no), json_array_elements_text(limits::json) k (key)
         ) all_of_it GROUP BY key HAVING sum(leases) <> 0) wrong",
    ),
    (
        "a limit is exceeded",
        "SELECT count(*) FROM (SELECT k.key, count(*) AS leases FROM sm.lease JOIN sm.task USING (no),
             json_array_elements_text(limits::json) k (key) GROUP BY 1) held JOIN sm.task_limit USING (key) WHERE leases > max",
    ),
    (
        "a lane's count of ready tasks is not theirs",
        "SELECT count(*) FROM sm.lane_now FULL JOIN (SELECT lane, count(*) AS there FROM sm.ready GROUP BY 1) ready
         ON ready.lane = digest WHERE coalesce(lane_now.ready, 0) <> coalesce(there, 0)",
    ),
    (
        "a lane's count of tasks is not that of those that have not ended",
        "SELECT count(*) FROM sm.lane_now FULL JOIN (SELECT lane, count(*) AS there FROM (
             SELECT lane FROM sm.ready UNION ALL SELECT lane FROM sm.lease
             UNION ALL SELECT lane FROM sm.idle WHERE state < 6) stands GROUP BY 1) stands
         ON stands.lane = digest WHERE coalesce(lane_now.tasks, 0) <> coalesce(there, 0)",
    ),
    (
        "a limit's count of lanes is not theirs",
        "SELECT count(*) FROM sm.limit_use FULL JOIN (SELECT k.key, count(*) AS there FROM sm.lane,
             json_array_elements_text(limits::json) k (key) GROUP BY 1) named USING (key)
         WHERE coalesce(lanes, 0) <> coalesce(there, 0)",
    ),
    (
        "a task does not stand in one place",
        "SELECT count(*) FROM (SELECT no FROM sm.task FULL JOIN (SELECT no, 0 AS place FROM sm.ready
             UNION ALL SELECT no, 1 FROM sm.lease UNION ALL SELECT no, 2 FROM sm.idle) stands USING (no)
         GROUP BY no HAVING count(*) <> 1 OR count(task.lane) <> 1 OR count(stands.place) <> 1) wrong",
    ),
    (
        "a task is sensing without a waiting sensor, or the reverse",
        "SELECT count(*) FROM (SELECT no, epoch FROM sm.idle WHERE state = 4) sensing
         FULL JOIN (SELECT no, epoch FROM sm.sensor WHERE state = 0) waiting USING (no, epoch)
         WHERE sensing.no IS NULL OR waiting.no IS NULL",
    ),
    (
        "the index of runs does not hold just the attempts under way as open",
        "SELECT (SELECT count(*) FROM sm.run WHERE stop IS NULL) - (SELECT count(*) FROM sm.lease WHERE started = 1)
         - (SELECT count(*) FROM sm.idle WHERE state = 4)",
    ),
    ("a key stands for two tasks", "SELECT count(*) - count(DISTINCT workflow || run || '/' || task) FROM sm.task"),
];

/// All stored tasks: number, epoch, state, and whether it was ever started.
pub const TASKS: &str = "SELECT no, epoch, 0, first_started_at IS NOT NULL FROM sm.ready
    UNION ALL SELECT no, epoch, 1 + started, first_started_at IS NOT NULL FROM sm.lease
    UNION ALL SELECT no, epoch, state, first_started_at IS NOT NULL FROM sm.idle";
