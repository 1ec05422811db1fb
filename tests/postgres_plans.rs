//! How PostgreSQL answers the statements of the store: through an index, and without sorting tables.
//!
//! The statements are not written down here: they are what the store sends while the conformance suite runs.
#![cfg(all(feature = "postgres", feature = "testing"))]

#[allow(dead_code, reason = "each test binary uses its own part")]
mod postgres_server;
mod scratch;

use std::collections::BTreeSet;

use postgres_server::Plain;
use scratch::{Scratch, ScratchStore, url};
use serde_json::Value;
use stationmaster::conformance::{self, Capabilities};
use stationmaster::store::postgres::PostgresOptions;
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
            statements.insert(statement);
        }
    }
    statements
}

/// What the store sends in the cases of the conformance suite, but for the audit, which reads everything by intention.
fn statements() -> BTreeSet<SentStatement> {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    // The others ask nothing else.
    let is_of_use =
        |name: &str| !["model::", "threads::", "extremes::"].iter().any(|group| name.starts_with(group));
    let ((), sent) = watch_round_trips(|| {
        for case in conformance::cases(Capabilities::new()).iter().filter(|case| is_of_use(case.name)) {
            scratch.empty();
            (case.run)(&store);
        }
    });
    let (found, audit) = watch_round_trips(|| store.read(|tx| tx.audit()));
    assert!(found.is_ok());
    &distinct(sent) - &distinct(audit)
}

/// Many rows of every kind: of tasks, so many of each state.
fn fill(plain: &Plain, schema: &str, waiting: u32, other: u32) {
    let all = waiting + other;
    plain.ask(
        &format!(
            "INSERT INTO s.task (no, state, due, lane, slots, rank, logical_date, map_index, priority, enqueued_at,
                 ready_at, ended_at, expires_at, namespace, workflow, run, task, payload)
             SELECT i, CASE WHEN i <= {waiting} THEN 0 ELSE 1 + i % 8 END, CASE WHEN i % 3 = 0 THEN i END, i % 7, 1, 0, 0, -1,
                 0, 0, 0, i, CASE WHEN i % 2 = 0 THEN i END, 'n', 'w', 'r', 't' || i, '' FROM generate_series(1, {all}) i;
             INSERT INTO s.namespace (no, name) SELECT md5(i::text)::uuid, 'n' || i FROM generate_series(1, 300) i;
             INSERT INTO s.run (ns, node, start, stop, status, method, id)
             SELECT md5((i % 299 + 1)::text)::uuid, CASE WHEN i % 5 > 0 THEN i END, i, CASE WHEN i % 5 > 0 THEN i END, 0, 0, 'r' || i
             FROM generate_series(1, {all}) i;
             INSERT INTO s.sensor (no, epoch, state, fingerprint, attempt, generation, interval, timeout, on_landed,
                 on_missed, registered_at, times_out_at, kind, context)
             SELECT i, 1, CASE WHEN i <= {waiting} THEN 0 ELSE 1 END, i, 1, 1, 1, 1, 0, 0, 0, 0, 'k', '{{}}'
             FROM generate_series(1, {all}) i;
             INSERT INTO s.event (seq, no, generation, at, reason, next) SELECT i, i, 1, 0, 0, 6 FROM generate_series(1, {all}) i;
             INSERT INTO s.sensor_change (seq, no, waiting) SELECT i, i, i <= {waiting} FROM generate_series(1, {all}) i;
             INSERT INTO s.sensor_inbox (no, kind) SELECT i, i % 3 FROM generate_series(1, {all}) i;
             INSERT INTO s.event_inbox (no, generation, at, reason, next) SELECT i, 1, 0, 0, 6 FROM generate_series(1, {all}) i;
             INSERT INTO s.lane (no, digest, pool, slots, limits, ready)
             SELECT i, i, 'p', i, '[]', CASE WHEN i % 100 = 0 THEN 1 ELSE 0 END FROM generate_series(1, {all}) i;
             INSERT INTO s.task_limit (key) SELECT 'k' || i FROM generate_series(1, {all}) i;
             INSERT INTO s.pool (name) SELECT 'p' || i FROM generate_series(1, {all}) i;
             INSERT INTO s.request (id, at, nos, epochs) SELECT 'q' || i, i, '{{}}', '{{}}' FROM generate_series(1, {all}) i;
             INSERT INTO s.worker (name, codes, shards, expires_at, incarnation) SELECT 'w' || i, 1, 1, i, i FROM generate_series(1, {all}) i;
             INSERT INTO s.shard (shard, holder, epoch, expires_at)
             SELECT i, 'w' || i, 1, i FROM generate_series(1, {all}) i"
        )
        .replace(" s.", &format!(" {schema}.")),
    );
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
    ("writer", ""),
    ("counter", ""),
    ("lane_ready", ""),
    ("task_limit_defined", ""),
    ("pool_pkey", "FROM S.pool ORDER BY name"),
    ("shard_pkey", "FROM S.shard ORDER BY shard"),
    // All leases, and all sensors: their slots are summed.
    ("task_lease", "GROUP BY lane, state"),
    ("task_sensing", "GROUP BY lane)"),
    // Runs of all namespaces, where none is named.
    ("namespace", "cardinality($1::uuid[]) = 0"),
    ("namespace_pkey", "cardinality($1::uuid[]) = 0"),
    ("namespace_pkey", "FROM S.namespace GROUP BY no"),
    // Sensors that were deleted since changes got their last numbers.
    ("sensor_inbox_deleted", ""),
];

/// What is sorted by intention: the places of a page, which come from several namespaces, and what was asked for.
const SORTED: &[(&str, &str)] = &[
    (".start", "LIMIT $7::bigint"),
    ("given", ""),
    ("asked_1.first", "INSERT INTO S.task"),
    ("found", "INSERT INTO S.sensor"),
    ("placed", "INSERT INTO S.sensor_inbox"),
    // What gets a number.
    ("", "stationmaster.numbers"),
];

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
        && !SORTED.iter().any(|(what, sent)| key.contains(what) && sql.contains(sent))
    {
        found.push(format!("{kind} by {key}"));
    }
    let bounded = kind == "Limit" || bounded && !kind.contains("Agg") && kind != "Sort";
    let below = node["Plans"].as_array().into_iter().flatten();
    below.for_each(|child| complaints(sql, child, bounded, found));
}

/// Complaints about the plans that these statements have on tables with so many rows.
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
    for bad in ["SELECT no FROM s.task WHERE holder = 'x'", "SELECT no FROM s.task ORDER BY payload LIMIT 3"]
    {
        let found = check(planner_settings(), &BTreeSet::from([statement(bad)]), 1_000, 1_000);
        assert!(!found.is_empty(), "{bad}");
    }
}
