//! What must hold in every committed state of the SQLite store, in plain SQL that counts what breaks it.

/// The tables have the prefix `sm_`; `{keys}` stands for the rows, of one column `value`, of a lane's limit keys;
/// `{open}` for the condition that a task of a lane counts, and `{unneeded}` for a lane that should be deleted.
pub const RULES: &[(&str, &str)] = &[
    (
        "a pool's used slots are not the sum of its leases",
        "SELECT count(*) FROM sm_pool p WHERE used <> (SELECT coalesce(sum(t.slots), 0) FROM sm_task t
         JOIN sm_lane l ON l.no = t.lane WHERE l.pool = p.name AND t.state IN (1, 2))",
    ),
    ("a pool is oversubscribed", "SELECT count(*) FROM sm_pool WHERE used > slots"),
    (
        "a limit's count is not that of its tasks",
        "SELECT count(*) FROM sm_task_limit c WHERE used <> (SELECT count(*) FROM sm_task t JOIN sm_lane l ON l.no = t.lane,
         {keys} k WHERE k.value = c.key AND t.state IN (1, 2)) OR used > max",
    ),
    (
        "a lane's ready count is not that of its tasks",
        "SELECT count(*) FROM sm_lane l WHERE ready <>
         (SELECT count(*) FROM sm_task t WHERE t.lane = l.no AND t.state = 0)",
    ),
    (
        "a lane's count is not that of its tasks, or it has none",
        "SELECT count(*) FROM sm_lane l WHERE {unneeded} OR tasks <> (SELECT count(*) FROM sm_task t WHERE t.lane = l.no {open})",
    ),
    (
        "a limit's count of lanes is not theirs, or nothing keeps it",
        "SELECT count(*) FROM sm_task_limit c WHERE lanes = 0 AND max IS NULL
         OR lanes <> (SELECT count(*) FROM sm_lane l, {keys} k WHERE k.value = c.key AND l.tasks > 0)",
    ),
    (
        "a lease does not fit its task's state",
        "SELECT count(*) FROM sm_task WHERE (state IN (1, 2)) <> (expires_at IS NOT NULL AND holder IS NOT NULL)
         OR (state IN (1, 2)) <> (held_slots > 0)",
    ),
    (
        "a task is sensing without a waiting sensor, or the reverse",
        "SELECT (SELECT count(*) FROM sm_task t LEFT JOIN sm_sensor s ON s.no = t.no AND s.epoch = t.epoch AND s.state = 0
         WHERE (t.state = 4) <> (s.no IS NOT NULL))
         + (SELECT count(*) FROM sm_sensor s LEFT JOIN sm_task t ON t.no = s.no WHERE s.state = 0 AND t.state IS DISTINCT FROM 4)",
    ),
    (
        "the index of runs does not hold just the attempts under way as open",
        "SELECT (SELECT count(*) FROM sm_run WHERE stop IS NULL)
         - (SELECT count(*) FROM sm_task WHERE state IN (2, 4))",
    ),
    ("a key stands for two tasks", "SELECT count(*) - count(DISTINCT workflow || run || '/' || task) FROM sm_task"),
];

/// All stored tasks: number, epoch, state, and whether it was ever started.
pub const TASKS: &str = "SELECT no, epoch, state, first_started_at IS NOT NULL FROM sm_task";
