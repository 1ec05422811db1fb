//! How PostgreSQL answers the statements of the store: through an index, and without sorting tables. And how often a tick asks.
//!
//! The statements are not written down here: they are what the store sends while the conformance suite runs.
#![cfg(all(feature = "postgres", feature = "testing"))]

#[allow(dead_code, reason = "each test binary uses its own part")]
mod postgres_server;
mod scratch;

use std::collections::BTreeSet;
use std::sync::Arc;

use postgres_server::Plain;
use scratch::{Scratch, ScratchStore, url};
use serde_json::Value;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::conformance::{self, Capabilities};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::lifecycle::{Finish, enqueue, finish};
use stationmaster::service::{Admitter, AdmitterOptions, Service};
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::store::{Store, StoreExt};
use stationmaster::testing::{RoundTrip, SentStatement, planner_settings, watch_round_trips};
use stationmaster::{LeaseRef, NewTask, TaskKey};

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

/// What the store sends in every case of the conformance suite, but for the audit, which reads everything by intention.
fn statements() -> BTreeSet<SentStatement> {
    let (failures, sent) = watch_round_trips(|| {
        conformance::failures(Capabilities::new(), &|| Box::new(ScratchStore::open(|options| options)))
    });
    for f in &failures { println!("FAILED CASE {f}"); }
    //assert!(failures.is_empty(), "{} cases failed: see the conformance test", failures.len());
    let scratch = ScratchStore::open(|options| options);
    let (found, audit) = watch_round_trips(|| scratch.store.read(|tx| Ok(tx.audit()?)));
    assert!(found.unwrap().is_empty());
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
             INSERT INTO s.namespace (no, name) SELECT i, 'n' || i FROM generate_series(1, 300) i;
             INSERT INTO s.run (ns, node, start, stop, status, method, id)
             SELECT i % 299 + 1, CASE WHEN i % 5 > 0 THEN i END, i, CASE WHEN i % 5 > 0 THEN i END, 0, 0, 'r' || i
             FROM generate_series(1, {all}) i;
             INSERT INTO s.sensor (no, epoch, state, changed, fingerprint, attempt, generation, interval, timeout, on_landed,
                 on_missed, registered_at, times_out_at, kind, context)
             SELECT i, 1, CASE WHEN i <= {waiting} THEN 0 ELSE 1 END, i, i, 1, 1, 1, 1, 0, 0, 0, 0, 'k', '{{}}'
             FROM generate_series(1, {all}) i;
             INSERT INTO s.event (seq, no, generation, at, reason, next) SELECT i, i, 1, 0, 0, 6 FROM generate_series(1, {all}) i;
             INSERT INTO s.lane (no, digest, pool, slots, limits, ready)
             SELECT i, i, 'p', i, '[]', CASE WHEN i % 100 = 0 THEN 1 ELSE 0 END FROM generate_series(1, {all}) i;
             INSERT INTO s.cap (key) SELECT 'k' || i FROM generate_series(1, {all}) i;
             INSERT INTO s.pool (name) SELECT 'p' || i FROM generate_series(1, {all}) i;
             INSERT INTO s.request (id, at, nos, epochs) SELECT 'q' || i, i, '{{}}', '{{}}' FROM generate_series(1, {all}) i;
             INSERT INTO s.worker (name, codes, shards, expires_at) SELECT 'w' || i, 1, 1, i FROM generate_series(1, {all}) i;
             INSERT INTO s.shard (shard, holder, epoch, expires_at)
             SELECT i, 'w' || i, 1, i FROM generate_series(1, {all}) i"
        )
        .replace(" s.", &format!(" {schema}.")),
    );
    plain.ask("ANALYZE");
}

/// The generic plan of a statement, which the server makes without knowing the parameters.
fn plan(plain: &Plain, schema: &str, SentStatement { sql, types, .. }: &SentStatement) -> Value {
    let sql = sql.replace(SCHEMA, &format!("\"{schema}\"."));
    let (types, nulls) = match types.len() {
        0 => (String::new(), String::new()),
        n => (format!("({})", types.join(", ")), format!("({})", vec!["NULL"; n].join(", "))),
    };
    let types = types.replace("_int8", "int8[]").replace("_text", "text[]");
    let rows = plain
        .ask(&format!("PREPARE p {types} AS {sql}; EXPLAIN (FORMAT JSON) EXECUTE p {nulls}; DEALLOCATE p"));
    serde_json::from_str(rows[0][0].as_deref().unwrap()).unwrap()
}

/// What is read as a whole by intention: one row, or what is answered as a whole.
const WHOLE: &[&str] = &["writer", "cap_defined", "lane_ready", "pool_pkey"];

/// What is wrong with a node, and with those below it.
fn complaints(node: &Value, bounded: bool, found: &mut Vec<String>) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let (kind, table, index) = (text("Node Type"), text("Relation Name"), text("Index Name"));
    // An index that is read from its beginning is no search, unless it gives the order of what is limited.
    let is_index = matches!(kind, "Index Scan" | "Index Only Scan");
    let is_whole = kind == "Seq Scan" || is_index && text("Index Cond").is_empty() && !bounded;
    if is_whole && !WHOLE.iter().any(|whole| [table, index].contains(whole)) {
        found.push(format!("{kind} of {table} {index}"));
    }
    // What was asked for may be put in order: it is no longer than that.
    let keys = node["Sort Key"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if !keys.clone().all(|key| key.starts_with("given.")) {
        found.push(format!("{kind} by {:?}", keys.collect::<Vec<_>>()));
    }
    let bounded = kind == "Limit" || bounded && !kind.contains("Agg") && kind != "Sort";
    let below = node["Plans"].as_array().into_iter().flatten();
    below.for_each(|child| complaints(child, bounded, found));
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
        complaints(&plan(&plain, &schema, statement)[0]["Plan"], false, &mut found);
        found.into_iter().map(|complaint| format!("{complaint}: {}\n", statement.sql)).collect::<Vec<_>>()
    };
    statements.iter().flat_map(of).collect()
}

/// The server's statistics may be of a moment when almost everything waited, or nothing did, or when tables were empty.
#[test]
fn every_statement_uses_an_index_and_sorts_no_table() {
    let statements = statements();
    assert!(statements.len() > 40, "the workload sends only {} statements", statements.len());
    for (waiting, other) in [(5_000, 50), (50, 5_000), (0, 0)] {
        let found = check(planner_settings(), &statements, waiting, other);
        assert!(found.is_empty(), "{waiting} waiting, {other} not: {}", found.join("\n"));
    }
    println!("{} statements, 0 complaints", statements.len());
}

#[test]
fn the_check_sees_scans_and_sorts() {
    let statement = |sql: &str| {
        let ((), trips) = watch_round_trips(|| {
            drop(ScratchStore::open(|options| options).store.read(|tx| Ok(tx.all_pools()?)).unwrap());
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

/// Pools and tasks.
fn backlog(store: &dyn Store, pools: usize, tasks: usize) {
    let name = |n: usize| format!("pool-{}", n % pools);
    let specs: Vec<PoolSpec> =
        (0..pools).map(|n| PoolSpec::new(name(n), Slots::Limited(1_000)).unwrap()).collect();
    let tasks: Vec<NewTask> = (0..tasks)
        .map(|n| {
            let key = TaskKey::new("plans", "w", "r", n.to_string()).unwrap();
            NewTask::new(key).pool(name(n).try_into().unwrap())
        })
        .collect();
    store
        .write(|tx| {
            tx.put_pools(&specs)?;
            enqueue(tx, SystemClock.now(), &tasks)
        })
        .unwrap();
}

#[test]
fn a_tick_takes_four_round_trips_whatever_the_number_of_pools_and_tasks() {
    for (pools, tasks) in [(1, 1), (3, 100), (200, 2_000)] {
        let scratch = ScratchStore::open(|options| options);
        let store: Arc<dyn Store> = Arc::new(scratch);
        backlog(store.as_ref(), pools, tasks);
        let options = AdmitterOptions::default().budget(tasks);
        let mut admitter = Admitter::new(store.clone(), "host".try_into().unwrap(), options).unwrap();
        let (admission, trips) = watch_round_trips(|| admitter.tick(SystemClock.now()).unwrap());
        assert_eq!(admission.granted.len(), tasks);
        println!("{pools} pools, {tasks} tasks: {} round trips", trips.len());
        assert!(trips.len() <= 4, "{} round trips: {trips:#?}", trips.len());

        let leases: Vec<LeaseRef> = admission.granted.iter().map(|task| task.lease_ref()).collect();
        let finishes: Vec<Finish> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        let (_, trips) =
            watch_round_trips(|| store.write(|tx| finish(tx, SystemClock.now(), &finishes)).unwrap());
        println!("the end of all of them: {} round trips", trips.len());
        let (admission, trips) = watch_round_trips(|| admitter.tick(SystemClock.now()).unwrap());
        assert!(admission.granted.is_empty() && trips.len() <= 2, "an idle tick: {trips:#?}");
    }
}
