//! How PostgreSQL answers the statements of the store: through an index, and without sorting tables.
//!
//! The statements are not written down here: they are what the store sends while the conformance suite runs.
#![cfg(all(feature = "postgres", feature = "testing"))]

mod linear;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
#[path = "../scratch/mod.rs"]
mod scratch;

use std::collections::BTreeSet;

use postgres_server::Plain;
use scratch::{Scratch, ScratchStore, url};
use serde_json::Value;
use stationmaster::Timestamp;
use stationmaster::conformance::{self, Capabilities};
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::task::{TaskQuery, TaskState};
use stationmaster::testing::{RoundTrip, SentStatement, planner_settings, watch_round_trips};

/// Stands for the schema in a statement.
const SCHEMA: &str = "\"S\".";

/// The distinct statements that were sent, without those that only begin and end, and with one name for all schemas.
fn distinct(trips: Vec<RoundTrip>) -> BTreeSet<SentStatement> {
    let mut statements = BTreeSet::new();
    for mut statement in trips.into_iter().flat_map(|trip| trip.statements) {
        if let Some((_, rest)) = statement.sql.split_once("\"sm_") {
            let name = format!("\"sm_{}", rest.split_once("\".").unwrap().0);
            statement.sql = statement.sql.replace(&format!("{name}\"."), SCHEMA);
            // Locks and settings have no plan.
            if !statement.sql.starts_with("LOCK ") && !statement.sql.starts_with("SET ") {
                statements.insert(statement);
            }
        }
    }
    statements
}

/// What the store sends in the cases of the conformance suite, but for the audit, which reads everything by intention.
fn statements() -> BTreeSet<SentStatement> {
    let scratch = Scratch::new();
    // What the suite notes it reads in the same transaction.
    let store = scratch.open(|options| options).numbering();
    // The others ask nothing else.
    let is_of_use =
        |name: &str| !["model::", "threads::", "extremes::"].iter().any(|group| name.starts_with(group));
    let ((), sent) = watch_round_trips(|| {
        for case in conformance::cases(Capabilities::new()).iter().filter(|case| is_of_use(case.name)) {
            scratch.empty();
            (case.run)(&store);
        }
    });
    // Only where lanes are filed does an audit look at their order and marks.
    Plain::connect(&url()).ask(&format!("UPDATE \"{}\".tick SET many = true", scratch.0));
    let (found, audit) = watch_round_trips(|| store.read(|tx| tx.audit()));
    assert!(found.is_ok());
    &distinct(sent) - &distinct(audit)
}

/// The rows with which plans are looked at, here and in the tests of single statements.
const FILL: &str = include_str!("fill.sql");

/// Fills all tables.
fn fill(plain: &Plain, schema: &str, waiting: u32, other: u32) {
    let values =
        [("sm.", format!("{schema}.")), ("{waiting}", waiting.to_string()), ("{other}", other.to_string())];
    plain.ask(&values.iter().fold(FILL.to_owned(), |text, (name, value)| text.replace(name, value)));
    for row in plain.ask(&format!("SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")) {
        plain.ask(&format!("ANALYZE {schema}.{}", row[0].as_deref().unwrap()));
    }
}

/// The generic plan of a statement, which the server makes without knowing the parameters.
fn plan(plain: &Plain, schema: &str, SentStatement { sql, types, .. }: &SentStatement) -> Value {
    let sql = sql.replace(SCHEMA, &format!("\"{schema}\"."));
    let (types, nulls) = match types.len() {
        0 => (String::new(), String::new()),
        n => (format!("({})", types.join(", ")), format!("({})", vec!["NULL"; n].join(", "))),
    };
    let types = types.replace("_int8", "int8[]").replace("_text", "text[]").replace("_uuid", "uuid[]");
    let rows = plain
        .ask(&format!("PREPARE p {types} AS {sql}; EXPLAIN (FORMAT JSON) EXECUTE p {nulls}; DEALLOCATE p"));
    serde_json::from_str(rows[0][0].as_deref().unwrap()).unwrap()
}

/// What is read as a whole by intention, where a statement has this text: one row, or what is answered as a whole.
const WHOLE: &[(&str, &str)] = &[
    // One row.
    ("tick_pkey", ""),
    // A survey looks at all lanes, and so do sums over them.
    ("lane_pkey", ""),
    ("lane", "FROM S.lane CROSS JOIN LATERAL"),
    ("lane_use_empty", ""),
    ("pool_pkey", "ORDER BY pool.name"),
    ("pool_pkey", "FROM S.pool WHERE $1::bigint = 1"),
    ("task_limit_pkey", "ORDER BY task_limit.key"),
    ("shard_pkey", "FROM S.shard ORDER BY shard"),
    // The last takes of each shard, and the outages that go on: what a worker reads that gains a shard.
    ("shard_take_pkey", "FROM S.shard_take ORDER BY shard"),
    ("outage_open", "FROM S.outage WHERE until IS NULL"),
    // Each row is a consumer that a host named.
    ("consumer_pkey", "ORDER BY name"),
    ("consumer", "ORDER BY name"),
    // All leases, and all sensors: their slots are summed.
    ("lease", "GROUP BY lane, started"),
    ("idle_sensing", "GROUP BY lane)"),
    // What is ready with slots that it kept: no more tasks than slots, and usually none.
    ("idle_keeping", ""),
    // The same, counted by queue.
    ("lease", "SELECT queue, greatest"),
    ("idle_sensing", "SELECT queue, greatest"),
    // They are counted for a count by state.
    ("lease", "AS running FROM S.lease"),
    ("idle_sensing", "SELECT 4, count(*) FROM S.idle WHERE state = 4"),
    // The same, by lane.
    ("lease", "GROUP BY lane) held"),
    // A tick looks at all families and at all that is paused.
    ("family", ""),
    ("family_pkey", ""),
    ("pause", ""),
    ("pause_pkey", ""),
    // Whether there is a cap at all, and where something is defined, all of them.
    ("cap", ""),
    ("cap_pkey", ""),
    // Whether there is a share at all.
    ("share_use_pkey", "EXISTS (SELECT FROM S.share_use)"),
    // What waits under a cap: what has a lease does not.
    ("lease", "capped AS MATERIALIZED"),
    // One row for each live admitter.
    ("serving", ""),
    ("serving_pkey", ""),
    // Runs of all namespaces, where none is named.
    ("namespace", "cardinality($1::uuid[]) = 0"),
    ("namespace_pkey", "cardinality($1::uuid[]) = 0"),
    ("namespace_pkey", "FROM S.namespace GROUP BY no"),
    // Sensors that were deleted since changes got their last numbers.
    ("sensor_inbox_deleted", ""),
];

/// What is sorted by intention: the places of a page, which come from several namespaces, the few beats of
/// one lease, and the live admitters.
const SORTED: &[(&str, &str)] = &[
    (".start", "LIMIT $7::bigint"),
    ("beat.expires_at", "FROM S.lease"),
    ("serving", "DELETE FROM S.serving"),
    ("given", ""),
    ("found", "INSERT INTO S.sensor"),
    ("placed", "INSERT INTO S.sensor_inbox"),
    // What gets a number.
    ("", "stationmaster.numbers"),
];

/// Returns whether a table is read as a whole, or as far as a condition goes, by this node or those below it.
/// What is looked up row by row, or up to a limit, is as long as what was asked.
fn reads_a_table(node: &Value) -> bool {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let below = |only: usize| node["Plans"].as_array().into_iter().flatten().take(only);
    let is_apart = |child: &&Value| {
        !["InitPlan", "SubPlan"].contains(&child["Parent Relationship"].as_str().unwrap_or(""))
    };
    match text("Node Type") {
        "Limit" | "CTE Scan" | "Function Scan" | "Tid Scan" | "Result" => false,
        "Nested Loop" => below(1).any(reads_a_table),
        kind if kind.ends_with("Scan") && !text("Relation Name").is_empty() => {
            !WHOLE.iter().any(|(what, _)| [text("Relation Name"), text("Index Name")].contains(what))
        }
        _ => below(usize::MAX).filter(is_apart).any(reads_a_table),
    }
}

/// What is wrong with a node, and with those below it.
fn complaints(sql: &str, node: &Value, bounded: bool, found: &mut Vec<String>) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let (kind, table, index) = (text("Node Type"), text("Relation Name"), text("Index Name"));
    // An index that is read from its beginning is no search, unless it gives the order of what is limited.
    let is_index = matches!(kind, "Index Scan" | "Index Only Scan");
    let is_whole = kind == "Seq Scan" || is_index && text("Index Cond").is_empty() && !bounded;
    let may_be = |(what, sent): &(&str, &str)| [table, index].contains(what) && sql.contains(sent);
    if is_whole && !WHOLE.iter().any(may_be) {
        found.push(format!("{kind} of {table} {index}"));
    }
    if let Some(key) = node["Sort Key"][0].as_str()
        && node["Plans"].as_array().into_iter().flatten().any(reads_a_table)
        && !SORTED.iter().any(|(what, sent)| key.contains(what) && sql.contains(sent))
    {
        found.push(format!("{kind} by {key}"));
    }
    let bounded = kind == "Limit" || bounded && !kind.contains("Agg") && kind != "Sort";
    let below = node["Plans"].as_array().into_iter().flatten();
    below.for_each(|child| complaints(sql, child, bounded, found));
}

/// Complaints about the plans that these statements have on tables with this many rows.
fn check(settings: &[&str], statements: &BTreeSet<SentStatement>, waiting: u32, other: u32) -> Vec<String> {
    let scratch = Scratch::new();
    drop(scratch.open(|options: PostgresOptions| options));
    let (plain, schema) = (Plain::connect(&url()), scratch.0.to_string());
    fill(&plain, &schema, waiting, other);
    for setting in settings {
        plain.ask(&format!("SET {setting}"));
    }
    let of = |statement: &SentStatement| {
        let mut found = Vec::new();
        let sql = statement.sql.replace(SCHEMA, "S.");
        complaints(&sql, &plan(&plain, &schema, statement)[0]["Plan"], false, &mut found);
        found.into_iter().map(|complaint| format!("{complaint}: {}\n", statement.sql)).collect::<Vec<_>>()
    };
    statements.iter().flat_map(of).collect()
}

/// The server's statistics may be of a moment when almost everything waited, or nothing did.
#[test]
fn every_statement_uses_an_index_and_sorts_no_table() {
    let statements = statements();
    assert!(statements.len() > 40, "the workload sends only {} statements", statements.len());
    for (waiting, other) in [(3_000, 30), (30, 3_000)] {
        let found = check(planner_settings(), &statements, waiting, other);
        assert!(found.is_empty(), "{waiting} waiting, {other} not: {}", found.join("\n"));
    }
    println!("{} statements, 0 complaints", statements.len());
}

/// What is not an index condition of a scan of tasks in this plan, or not one at all.
fn unbounded(node: &Value, found: &mut Vec<String>) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let is_of_tasks = ["task", "ready", "lease", "idle"].contains(&text("Relation Name"));
    if is_of_tasks && (text("Index Cond").is_empty() || !text("Filter").is_empty()) {
        found.push(format!("{} {} {}", text("Node Type"), text("Index Name"), text("Filter")));
    }
    node["Plans"].as_array().into_iter().flatten().for_each(|child| unbounded(child, found));
}

/// A page of a list begins at its place in an index, and reads nothing that its index does not choose.
#[test]
fn lists_are_read_by_ranges_alone() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let name = || "x".try_into().unwrap();
    let in_namespace = |states: TaskQuery| states.namespace(name());
    let ((), sent) = watch_round_trips(|| {
        for query in [
            TaskQuery::all(),
            in_namespace(TaskQuery::all()),
            in_namespace(TaskQuery::all()).workflow("x".try_into().unwrap()),
            in_namespace(TaskQuery::all()).workflow("x".try_into().unwrap()).run("x".try_into().unwrap()),
            TaskQuery::waiting(),
            TaskQuery::waiting().pool("x".try_into().unwrap()),
            TaskQuery::waiting().due_before(Timestamp::UNIX_EPOCH),
            TaskQuery::new([TaskState::UpForRetry]),
            TaskQuery::new([TaskState::Scheduled]),
            TaskQuery::leased(),
            TaskQuery::leased().holder("x".try_into().unwrap()),
            TaskQuery::sensing(),
            TaskQuery::sensing().queue("x".try_into().unwrap()),
            TaskQuery::ended(),
            TaskQuery::ended().ended_since(Timestamp::UNIX_EPOCH),
            TaskQuery::new([TaskState::Failed]),
            // These filter what they read.
            TaskQuery::all().pool("x".try_into().unwrap()),
            TaskQuery::ended().pool("x".try_into().unwrap()),
            TaskQuery::leased().pool("x".try_into().unwrap()),
        ] {
            store.read(|tx| tx.list_tasks(&query)).unwrap();
        }
    });
    let lists: BTreeSet<SentStatement> =
        distinct(sent).into_iter().filter(|sent| sent.sql.starts_with("WITH seen AS")).collect();
    assert!(lists.len() > 18, "{} statements", lists.len());
    let (plain, schema) = (Plain::connect(&url()), scratch.0.to_string());
    for (waiting, other) in [(3_000, 30), (30, 3_000)] {
        scratch.empty();
        fill(&plain, &schema, waiting, other);
        for setting in planner_settings() {
            plain.ask(&format!("SET {setting}"));
        }
        for list in &lists {
            let mut found = Vec::new();
            unbounded(&plan(&plain, &schema, list)[0]["Plan"], &mut found);
            assert!(found.is_empty(), "{waiting} waiting: {found:?}: {}", list.sql);
        }
    }
}

#[test]
fn the_check_sees_scans_and_sorts() {
    let statement = |sql: &str| {
        let ((), trips) = watch_round_trips(|| {
            drop(ScratchStore::open(|options| options).store.read(|tx| tx.all_pools()).unwrap());
        });
        let mut sent = distinct(trips).pop_first().unwrap();
        sent.sql = sql.replace("s.", SCHEMA);
        sent
    };
    for bad in ["SELECT no FROM s.task WHERE retry = 'x'", "SELECT no FROM s.task ORDER BY payload LIMIT 3"] {
        let found = check(planner_settings(), &BTreeSet::from([statement(bad)]), 1_000, 1_000);
        assert!(!found.is_empty(), "{bad}");
    }
}
