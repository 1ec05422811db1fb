//! How PostgreSQL answers the statements that run all the time: through an index, and without sorting a table.

use tokio_postgres::{Client, Config, NoTls};

use super::super::migrate::migrate;
use super::super::name::Schema;
use super::super::options::PostgresOptions;
use super::{insert, lease, pool, retention, tick};

const HOT: &[(&str, &str)] = &[
    ("insert", insert::INSERT),
    ("tasks", insert::BY_KEY),
    ("tasks_by_no", insert::BY_NO),
    ("request", tick::REQUEST),
    ("promote", tick::PROMOTE),
    ("next_due", tick::NEXT_DUE),
    ("ready lanes", tick::READY_LANES),
    ("named pools", tick::NAMED_POOLS),
    ("named limits", tick::NAMED_CAPS),
    ("candidates", tick::CANDIDATES),
    ("grant", tick::GRANT),
    ("forget requests", tick::FORGET_REQUESTS),
    ("start", lease::START),
    ("renew", lease::RENEW),
    ("move", lease::MOVE),
    ("expired", lease::EXPIRED),
    ("next_expiry", lease::NEXT_EXPIRY),
    ("forget_ended", retention::FORGET_ENDED),
    ("delete pools", pool::DELETE_POOLS),
    ("pools", pool::POOLS),
    ("all pools", pool::ALL_POOLS),
    ("slot sums", pool::SLOT_SUMS),
    ("take slots", pool::TAKE_SLOTS),
    ("give slots", pool::GIVE_SLOTS),
    ("delete limits", pool::DELETE_CAPS),
    ("limits", pool::CAPS),
    ("all limits", pool::DEFINED_CAPS),
    ("take limits", pool::TAKE_CAPS),
    ("give limits", pool::GIVE_CAPS),
];

/// Sort what was asked, and nothing else: the tasks that are inserted or moved by one call.
const SORT_WHAT_WAS_ASKED: &[&str] = &["insert", "move"];

async fn connect(schema: &Schema) -> Client {
    let url = std::env::var("STATIONMASTER_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".into());
    let config: Config = url.parse().unwrap();
    let (mut client, connection) = config.connect(NoTls).await.expect(
        "a PostgreSQL server, named in STATIONMASTER_TEST_POSTGRES: docs/postgresql.md says how to start one",
    );
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE")).await.unwrap();
    migrate(&mut client, schema).await.unwrap();
    let options = PostgresOptions::new().schema(schema.clone());
    client.batch_execute(&options.session().unwrap()).await.unwrap();
    client.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    client
}

/// The plan that is made once and kept.
async fn plan(client: &Client, schema: &Schema, sql: &str) -> Vec<String> {
    let most = (1..40).rev().find(|n| sql.contains(&format!("${n}"))).unwrap_or(0);
    let nulls = vec!["NULL"; most].join(", ");
    let call = if most == 0 { String::new() } else { format!("({nulls})") };
    client.batch_execute(&format!("PREPARE hot AS {}", schema.apply(sql))).await.unwrap();
    let lines = client.query(&format!("EXPLAIN (COSTS OFF) EXECUTE hot{call}"), &[]).await.unwrap();
    client.batch_execute("DEALLOCATE hot").await.unwrap();
    lines.iter().map(|line| line.get(0)).collect()
}

/// Tables of one row, or of a handful.
fn is_small(step: &str) -> bool {
    ["Seq Scan on writer", "Seq Scan on counter"].iter().any(|small| step.contains(small))
}

fn complaint(name: &str, step: &str) -> Option<String> {
    let step = step.trim_start_matches([' ', '-', '>']);
    let scans = step.starts_with("Seq Scan on") && !is_small(step);
    let sorts =
        step.starts_with("Sort") && !step.starts_with("Sort Key") && !SORT_WHAT_WAS_ASKED.contains(&name);
    (scans || sorts || step.starts_with("Incremental Sort")).then(|| format!("{name}: {step}"))
}

/// Indexes that hold only what is asked for, or that of a table which is read whole; no condition is needed there.
const READ_WHOLE: &[&str] =
    &["task_due", "task_lease", "task_sensing", "lane_ready", "cap_defined", "pool_pkey"];

/// The scan of an index from end to end, which is no better than that of its table.
fn scans_whole_index(steps: &[String]) -> impl Iterator<Item = String> + '_ {
    steps.iter().enumerate().filter_map(|(at, step)| {
        let index = step.split_once(" using ")?.1.split(' ').next()?;
        let details = steps[at + 1..].iter().take_while(|step| !step.contains("->"));
        let bounded = details.into_iter().any(|detail| detail.contains("Index Cond"));
        (!bounded && !READ_WHOLE.contains(&index)).then(|| step.clone())
    })
}

async fn complaints(client: &Client, schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    for (name, sql) in HOT {
        let steps = plan(client, schema, sql).await;
        let mut wrong: Vec<String> = steps.iter().filter_map(|step| complaint(name, step)).collect();
        wrong.extend(scans_whole_index(&steps).map(|step| format!("{name}: {step}")));
        if !wrong.is_empty() {
            found.extend(wrong);
            found.extend(steps);
        }
    }
    found
}

fn on(name: &str, test: impl AsyncFnOnce(Client, Schema)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let schema = Schema::new(format!("sm_plans_{name}_{}", std::process::id())).unwrap();
        let client = connect(&schema).await;
        test(client, schema.clone()).await;
        connect(&schema).await.batch_execute(&format!("DROP SCHEMA \"{schema}\" CASCADE")).await.unwrap();
    });
}

#[test]
fn every_hot_statement_uses_an_index_and_sorts_no_table() {
    on("fresh", async |client, schema| {
        assert_eq!(complaints(&client, &schema).await, [""; 0]);
    });
}

/// Statistics may be of a moment when almost everything waited, or nothing did.
#[test]
fn statistics_change_no_plan() {
    on("full", async |client, schema| {
        for (waiting, other) in [(3000, 3), (3, 3000)] {
            let fill = format!(
                "DELETE FROM sm.task; DELETE FROM sm.lane; DELETE FROM sm.cap; DELETE FROM sm.pool; DELETE FROM sm.request;
                 INSERT INTO sm.task (no, state, due, lane, slots, rank, logical_date, map_index, priority, enqueued_at, ready_at,
                     ended_at, expires_at, namespace, workflow, run, task, payload)
                 SELECT i, CASE WHEN i <= {waiting} THEN 0 ELSE 1 + i % 8 END, CASE WHEN i % 3 = 0 THEN i END, i % 7, 1, 0, 0, -1,
                     0, 0, 0, i, CASE WHEN i % 2 = 0 THEN i END, 'n', 'w', 'r', 't' || i, ''
                 FROM generate_series(1, {waiting} + {other}) i;
                 INSERT INTO sm.lane (no, digest, pool, slots, limits, ready)
                 SELECT no, no, 'p', no, '[]', no % 2 FROM sm.task;
                 INSERT INTO sm.cap (key) SELECT 'k' || no FROM sm.task;
                 INSERT INTO sm.pool (name, slots) SELECT 'p' || no, 1 FROM sm.task;
                 INSERT INTO sm.request (id, at, nos, epochs) SELECT 'r' || no, no, '{{}}', '{{}}' FROM sm.task;
                 ANALYZE sm.task; ANALYZE sm.lane; ANALYZE sm.cap; ANALYZE sm.pool; ANALYZE sm.request;"
            );
            client.batch_execute(&schema.apply(&fill)).await.unwrap();
            assert_eq!(complaints(&client, &schema).await, [""; 0], "{waiting} waiting, {other} not");
        }
    });
}

#[test]
fn the_check_sees_scans_and_sorts() {
    on("bad", async |client, schema| {
        for bad in ["SELECT no FROM sm.task WHERE holder = 'x'", "SELECT no FROM sm.task ORDER BY payload"] {
            let steps = plan(&client, &schema, bad).await;
            let seen = steps.iter().any(|step| complaint("bad", step).is_some());
            assert!(seen || scans_whole_index(&steps).next().is_some(), "{bad}: {steps:?}");
        }
    });
}

#[test]
fn candidates_are_read_from_the_index_from_the_place_they_continue_at() {
    on("candidates", async |client, schema| {
        let steps = plan(&client, &schema, tick::CANDIDATES).await.join("\n");
        assert!(steps.contains("Index Only Scan using task_ready on task"), "{steps}");
        let range = "Index Cond: ((lane = page.lane) AND (ROW(rank, logical_date, map_index, no) > ";
        assert!(steps.contains(range), "{steps}");
    });
}
