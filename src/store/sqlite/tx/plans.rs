//! How SQLite runs the frequent statements: through an index, and without sorting.

use rusqlite::Connection;

use super::super::prefix::Prefix;
use super::super::upgrade::migrate as migrate_inside;
use super::{
    attempt, change, counters, grant, history, insert, lane, list, order, pool, retention, rules, run,
    sensor, share, tick, turns, worker,
};

const HOT: &[(&str, &str)] = &[
    ("promote_due", super::promote::PROMOTE),
    ("overdue", super::promote::OVERDUE),
    ("next_due, but for some", super::promote::DUE_AFTER),
    ("first candidates", tick::CANDIDATES[0]),
    ("equal candidates", tick::CANDIDATES[1]),
    ("later candidates", tick::CANDIDATES[2]),
    ("ready_lanes", lane::READY_LANES),
    ("ready lanes of a queue", lane::READY_LANES_OF),
    ("first lanes", lane::FIRST_LANES),
    ("first lanes of a queue", lane::FIRST_LANES_OF),
    ("whether many lanes are ready", order::ARE_READY),
    ("take lanes out", order::TAKE_OUT),
    ("some lanes", lane::SOME_LANES),
    ("group of a cause", order::GROUP),
    ("class of a lane", order::CLASS_OF),
    ("whether a lane sleeps", order::SLEEPS),
    ("move a lane", order::MOVE_LANE),
    ("close a class", order::CLOSE),
    ("put a group to sleep", order::PUT_TO_SLEEP),
    ("wake groups", order::WAKE_BY),
    ("wake groups of a queue", order::WAKE_BY_OF),
    ("next token", order::NEXT_TOKEN),
    ("next token of a queue", order::NEXT_TOKEN_OF),
    ("next class", order::NEXT_CLASS),
    ("next class of a queue", order::NEXT_CLASS_OF),
    ("next group", order::NEXT_GROUP),
    ("next lane", order::NEXT_LANE),
    ("shares that have changed", turns::CHANGED),
    ("file a turn", turns::FILE_TURN),
    ("turns are filed", turns::FILED),
    ("classes with shares", turns::SHARED_CLASSES),
    ("classes with shares of a queue", turns::SHARED_CLASSES_OF),
    ("next turns", turns::NEXT_TURNS),
    ("whether a contender's class is open", turns::IS_OPEN),
    ("first lane of a contender", turns::FIRST_LANE),
    ("lane", lane::LANE),
    ("lane number", lane::LANE_NO),
    ("count ready tasks of a lane", counters::COUNT),
    ("look for the first task of a lane", counters::COUNTED),
    ("count tasks of a lane", counters::COUNT_TASKS),
    ("count other tasks of a lane", counters::COUNT_OTHER_TASKS),
    ("delete lane", lane::DELETE_LANE),
    ("a limit's lane less", lane::UNNAME_LIMIT),
    ("delete unused limit", lane::DELETE_LIMIT),
    ("tasks", insert::BY_KEY),
    ("tasks_by_id", insert::BY_NO),
    ("number of key", insert::NO_OF_KEY),
    ("grant", grant::GRANT),
    ("granted", retention::REQUEST),
    ("replace request", retention::REPLACE_REQUEST),
    ("forget_requests", retention::FORGET_REQUESTS),
    ("latest request beyond a number", retention::LATEST_BEYOND),
    ("forget requests up to one", retention::FORGET_REQUESTS_UP_TO),
    ("start", attempt::START),
    ("renew", attempt::RENEW),
    ("renew what was cancelled", attempt::RENEW_CANCELLED),
    ("note", attempt::NOTE),
    ("cancel", attempt::CANCEL),
    ("deadline of a cancel", attempt::CANCEL_AT),
    ("move", attempt::MOVE),
    ("change", change::CHANGE),
    ("keep attempt", history::KEEP),
    ("forget attempts", history::FORGET),
    ("attempts", history::ATTEMPTS),
    ("delete attempts", history::DELETE_ATTEMPTS),
    ("what a move depends on", attempt::STANDING),
    ("whether attempts are recorded", attempt::RECORDS_ATTEMPTS),
    ("expired", attempt::EXPIRED),
    ("leases_of", attempt::LEASES_OF),
    ("next_expiry", attempt::NEXT_EXPIRY),
    ("forgettable", retention::FORGETTABLE),
    ("delete task", retention::DELETE_TASK),
    ("delete sensor", retention::DELETE_SENSOR),
    ("pool", pool::POOL),
    ("all_pools", pool::ALL_POOLS),
    ("delete pool", pool::DELETE_POOL),
    ("leased slots", pool::LEASED_SLOTS),
    ("sensing slots", pool::SENSING_SLOTS),
    ("count slots", counters::COUNT_SLOTS),
    ("families", rules::FAMILIES),
    ("share", share::SHARE),
    ("count a share", share::COUNT_SHARE),
    ("stamp a share", share::STAMP),
    ("forget shares", share::FORGET_SHARES),
    ("cap", rules::CAP),
    ("caps", rules::CAPS),
    ("any cap", rules::ANY_CAP),
    ("paused", rules::PAUSED),
    ("rate", rules::RATE),
    ("clock", rules::CLOCK),
    ("forget rates", rules::FORGET_RATES),
    ("limit", pool::LIMIT),
    ("all_limits", pool::DEFINED_LIMITS),
    ("delete limit", pool::UNDEFINE_LIMIT),
    ("count leases", counters::COUNT_LEASES),
    ("task of sensor", sensor::TASK),
    ("generation of sensor", sensor::GENERATION),
    ("put sensor", sensor::PUT),
    ("sensor of key", sensor::OF_KEY),
    ("changed_sensors", sensor::CHANGED),
    ("changed_sensors, waiting", sensor::CHANGED_WAITING),
    ("waiting sensor", sensor::IF_WAITING),
    ("end sensor", sensor::END),
    ("forget_workers", worker::FORGET_WORKERS),
    ("release shards", worker::RELEASE),
    ("delete loans", worker::DELETE_LOANS),
    ("write shard", worker::LATER_LEASE),
    ("forget takes of a shard", sensor::life::FORGET_TAKES),
    ("forget old takes of kinds", sensor::life::FORGET_TAKES_OF_KINDS),
    ("forget earlier outages", sensor::life::FORGET_EARLIER),
    ("forget ended outages", sensor::life::FORGET_ENDED),
    ("outages that go on", sensor::life::OPEN_OUTAGES),
    ("outages of a target", sensor::life::OUTAGES_OF),
    ("forget poke counts", sensor::counts::FORGET),
    ("poke counts", sensor::counts::SUMS),
    ("namespace", run::NAMESPACE),
    ("run", run::statements::RUN),
    ("open run", run::START_IF_OPEN),
    ("close run", run::CLOSE),
    ("delete run", run::DELETE),
    ("beat run", run::BEAT),
    ("delete run at", run::DELETE_AT),
    ("silent_runs", run::statements::SILENT),
    ("stopped runs", run::statements::STOPPED),
    ("active_runs", run::statements::ACTIVE.named),
    ("active_runs in all", run::statements::ACTIVE.all),
    ("active_run_places", run::statements::ACTIVE_PLACES.named),
    ("active_run_places in all", run::statements::ACTIVE_PLACES.all),
    ("surrounding", run::statements::SURROUNDING.named),
    ("surrounding in all", run::statements::SURROUNDING.all),
    ("surrounding places", run::statements::SURROUNDING_PLACES.named),
    ("surrounding places in all", run::statements::SURROUNDING_PLACES.all),
    ("page", run::statements::PAGE.named),
    ("page in all", run::statements::PAGE.all),
    ("page of places", run::statements::PAGE_PLACES.named),
    ("page of places in all", run::statements::PAGE_PLACES.all),
    ("tasks by number", list::NUMBERS),
    ("tasks of a namespace", list::KEYS_OF_NAMESPACE),
    ("tasks of a workflow", list::KEYS_OF_WORKFLOW),
    ("tasks of a run", list::KEYS_OF_RUN),
    ("tasks due at an instant", list::DUE_EQUAL),
    ("tasks due later", list::DUE_BEHIND),
    ("retries of a lane", list::RETRIES[0]),
    ("retries of lanes", list::RETRIES[1]),
    ("sensors of a lane", list::SENSING[0]),
    ("sensors of lanes", list::SENSING[1]),
    ("later tasks of a lane", list::LATER[0]),
    ("later tasks of lanes", list::LATER[1]),
    ("ready tasks of equal order", list::READY_EQUAL),
    ("ready tasks of a lane", list::READY_IN_LANE),
    ("ready tasks of lanes", list::READY_BEHIND),
    ("leases of a holder", list::LEASES_OF),
    ("leases of holders", list::LEASES_BEHIND),
    ("ends at an instant", list::ENDS[0]),
    ("ends before an instant", list::ENDS[1]),
    ("lanes from one on", list::LANES),
    ("count sensors", list::COUNT_SENSING),
    ("count retries", list::COUNT_RETRIES),
    ("count ends", list::COUNT_ENDS),
];

/// Read as a whole on purpose: the caller's own list, and lists as long as the result.
const WHOLE: &[&str] = &[
    "SCAN asked",
    "SCAN fork VIRTUAL",
    "SCAN json_each VIRTUAL",
    "SCAN merged",
    "SCAN named VIRTUAL",
    "SCAN sm_cap",
    "SCAN sm_family",
    "SCAN sm_pause",
    "SCAN sm_pool",
    "SCAN span VIRTUAL",
];

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = statement.parameter_count();
    let nulls = rusqlite::params_from_iter(std::iter::repeat_n(None::<i64>, parameters));
    statement.query_map(nulls, |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn complaint(name: &str, step: &str) -> Option<String> {
    let scans = step.starts_with("SCAN") && !step.contains("INDEX");
    let all = name.ends_with("in all") && step == "SCAN sm_namespace";
    let allowed = all || WHOLE.iter().any(|whole| step.starts_with(whole));
    let sorts = step.contains("TEMP B-TREE");
    (sorts || scans && !allowed).then(|| format!("{name}: {step}"))
}

fn complaints(conn: &Connection) -> Vec<String> {
    HOT.iter()
        .flat_map(|(name, sql)| plan(conn, sql).into_iter().filter_map(move |step| complaint(name, &step)))
        .collect()
}

#[test]
fn every_hot_statement_uses_an_index_and_sorts_nothing() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    assert_eq!(complaints(&conn), [""; 0]);
}

/// A host may gather statistics at a moment when almost all tasks wait, or almost none.
#[test]
fn statistics_of_the_host_change_no_plan() {
    for (waiting, other) in [(3000, 3), (3, 3000)] {
        let conn = Connection::open_in_memory().unwrap();
        migrate_inside(&conn, &Prefix::default()).unwrap();
        conn.execute_batch(&format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {waiting} + {other})
             INSERT INTO sm_task (no, state, due, lane, slots, rank, logical_date, map_index, priority, enqueued_at,
                 ready_at, ended_at, expires_at, namespace, workflow, run, task, payload)
             SELECT i, iif(i <= {waiting}, 0, 1 + i % 8), iif(i % 3 = 0, i, NULL), i % 7, 1, 0, 0, -1, 0, 0, 0,
                 i, iif(i % 2 = 0, i, NULL), 'n', 'w', 'r', 't' || i, '' FROM n;
             INSERT INTO sm_namespace (name) SELECT 'n' || no FROM sm_task WHERE no < 100;
             INSERT INTO sm_run (ns, node, start, stop, status, method, id)
             SELECT no % 99 + 1, due, no, due, 0, 0, 'r' || no FROM sm_task;
             INSERT INTO sm_sensor SELECT no, 1, no % 2, no, no, 1, 1, 1, 1, NULL, NULL, NULL, 0, 0, 0, 0, 'k', '{{}}', 'h' FROM sm_task;
             INSERT INTO sm_outage SELECT no, no, iif(no % 2 = 0, no, NULL) FROM sm_task;
             INSERT INTO sm_poke_count SELECT no, 'k', 'w', no, 1, 1, 1 FROM sm_task;
             INSERT INTO sm_shard_take SELECT no % 16, iif(no % 3 = 0, 'k', ''), no, 'w', no, 1, 1, 1 FROM sm_task;
             INSERT INTO sm_feed (seq, no, attempt, at, state, map_index, namespace, workflow, run, task) SELECT no, no, 1, 0, 6, -1, 'n', 'w', 'r', task FROM sm_task;
             INSERT INTO sm_lane (pool, slots, limits, ready) SELECT 'p', no, '[]', no % 2 FROM sm_task;
             INSERT INTO sm_task_limit (key) SELECT 'k' || no FROM sm_task;
             ANALYZE"
        ))
        .unwrap();
        assert_eq!(complaints(&conn), [""; 0], "{waiting} waiting, {other} not");
    }
}

#[test]
fn the_check_sees_scans_and_sorts() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    for bad in ["SELECT no FROM sm_task WHERE message = 'x'", "SELECT no FROM sm_task ORDER BY payload"] {
        assert!(plan(&conn, bad).iter().any(|step| complaint("bad", step).is_some()), "{bad}");
    }
}

#[test]
fn candidates_are_read_from_the_index_alone_and_from_the_place_they_continue_at() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    let ranges = [
        "(lane=?)",
        "(lane=? AND rank=? AND logical_date=? AND map_index=? AND rowid>?)",
        "(lane=? AND (rank,logical_date,map_index)>(?,?,?))",
    ];
    for (pages, index) in [
        (tick::CANDIDATES, "COVERING INDEX sm_task_ready"),
        (tick::KEEPING_CANDIDATES, "INDEX sm_task_keeping"),
    ] {
        for (sql, range) in pages.into_iter().zip(ranges) {
            assert_eq!(plan(&conn, sql), [format!("SEARCH sm_task USING {index} {range}")]);
        }
    }
}

/// The index contains at most as many tasks as there are slots, and usually none.
#[test]
fn what_keeps_its_slots_is_read_from_an_index_of_only_that() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    for sql in [lane::KEEPING_LANES, grant::KEEPING] {
        let plan = plan(&conn, sql);
        assert!(plan.iter().any(|step| step.contains("INDEX sm_task_keeping")), "{plan:?}");
    }
}

#[test]
fn what_can_be_forgotten_is_read_from_an_index_of_only_that() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    let plan = plan(&conn, retention::FORGETTABLE);
    let tasks = "SEARCH sm_task USING INDEX sm_task_ended (state=? AND ended_at<?)";
    let sensor = "SEARCH sensor USING INTEGER PRIMARY KEY (rowid=?)";
    assert_eq!(plan, [tasks, "CORRELATED SCALAR SUBQUERY 1", sensor]);
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 'sm_task_ended'";
    let index: String = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(index.ends_with("WHERE state >= 6"), "{index}");
}

/// A list reads from the place where it continues, and nothing before it.
#[test]
fn lists_are_read_by_ranges_alone() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    for (sql, range) in [
        (list::NUMBERS, "INTEGER PRIMARY KEY (rowid<?)"),
        (
            list::KEYS_OF_NAMESPACE,
            "INDEX sm_task_key (namespace=? AND (workflow,run,task,map_index)>(?,?,?,?))",
        ),
        (
            list::KEYS_OF_WORKFLOW,
            "INDEX sm_task_key (namespace=? AND workflow=? AND (run,task,map_index)>(?,?,?))",
        ),
        (
            list::KEYS_OF_RUN,
            "INDEX sm_task_key (namespace=? AND workflow=? AND run=? AND (task,map_index)>(?,?))",
        ),
        (
            list::DUE_EQUAL,
            "INDEX sm_task_due (due=? AND rank=? AND logical_date=? AND map_index=? AND rowid>?)",
        ),
        (list::DUE_BEHIND, "INDEX sm_task_due ((due,rank,logical_date,map_index)>(?,?,?,?) AND due<?)"),
        (list::RETRIES[0], "INDEX sm_task_retry (lane=? AND rowid>?)"),
        (list::RETRIES[1], "INDEX sm_task_retry (lane>?)"),
        (list::SENSING[0], "INDEX sm_task_sensing (lane=? AND rowid>?)"),
        (list::LATER[0], "INDEX sm_task_later (lane=? AND rowid>?)"),
        (
            list::READY_EQUAL,
            "INDEX sm_task_ready (lane=? AND rank=? AND logical_date=? AND map_index=? AND rowid>?)",
        ),
        (list::READY_IN_LANE, "INDEX sm_task_ready (lane=? AND (rank,logical_date,map_index)>(?,?,?))"),
        (list::READY_BEHIND, "INDEX sm_task_ready (lane>?)"),
        (list::LEASES_OF, "INDEX sm_task_holder (holder=? AND rowid>?)"),
        (list::LEASES_BEHIND, "INDEX sm_task_holder (holder>?)"),
        (list::ENDS[0], "INDEX sm_task_ended (state=? AND ended_at=? AND rowid<?)"),
        (list::ENDS[1], "INDEX sm_task_ended (state=? AND ended_at>? AND ended_at<?)"),
    ] {
        assert_eq!(plan(&conn, sql), [format!("SEARCH sm_task USING {range}")], "{sql}");
    }
}

/// Indexes bound what a window reads on every side. Only the rule for active runs rejects rows that were read.
#[test]
fn active_runs_are_read_by_ranges_alone() {
    let conn = Connection::open_in_memory().unwrap();
    migrate_inside(&conn, &Prefix::default()).unwrap();
    let steps = |sql| plan(&conn, sql).into_iter().filter(|step| step.contains("sm_run")).collect::<Vec<_>>();
    let records = steps(run::statements::ACTIVE.named);
    assert_eq!(
        records,
        [
            "SEARCH sm_run USING PRIMARY KEY (ns=? AND start>? AND start<?)",
            "SEARCH sm_run USING INDEX sm_run_open (ns=? AND start<?)",
            "SEARCH sm_run USING INDEX sm_run_node_stop (ns=? AND node=? AND stop>?)",
            "SEARCH sm_run USING INDEX sm_run_node_start (ns=? AND node=? AND start<?)",
        ]
    );
    let places = steps(run::statements::ACTIVE_PLACES.all);
    assert!(places[1..].iter().all(|step| step.contains("COVERING INDEX")), "{places:?}");
    let page = steps(run::statements::PAGE.named);
    assert!(page.iter().any(|step| step.contains("(ns=? AND (start,id)>(?,?) AND start<?)")), "{page:?}");
}
