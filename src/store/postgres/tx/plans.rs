//! How PostgreSQL runs the frequent statements: through an index, and without sorting a table.

use std::collections::HashMap;

use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::super::digest::Digest;
use super::super::name::Schema;
use super::super::options::PostgresOptions;
use super::super::tick_lock;
use super::super::upgrade::migrate;
use super::{
    attempt, audit, cap, change, feed, fold, insert, pool, promote, queue, retention, rules, run, sensor,
    tick, worker,
};

const HOT: &[(&str, &str)] = &[
    ("enqueue", insert::ENQUEUE),
    ("enqueue one", insert::ENQUEUE_ONE),
    ("enqueue new", insert::ENQUEUE_NEW),
    ("enqueue all new", insert::ENQUEUE_ALL_NEW),
    ("tasks", insert::BY_KEY),
    ("tasks_by_id", insert::BY_NO),
    ("fold", fold::FOLD),
    ("request", tick::REQUEST),
    ("promote", promote::PROMOTE),
    ("overdue", promote::OVERDUE),
    ("overdue lanes", promote::OVERDUE_LANES),
    ("next_due", tick::NEXT_DUE),
    ("next_due, folded", tick::NEXT_DUE_FOLDED),
    ("ready lanes", tick::READY_LANES),
    ("folded lanes", tick::FOLDED_LANES),
    ("folded pools", tick::FOLDED_POOLS),
    ("survey few lanes", tick::survey::SURVEY_FEW),
    ("folded limits", tick::FOLDED_LIMITS),
    ("folded shares", tick::share::FOLDED_SHARES),
    ("shares", tick::share::SHARES),
    ("stamp shares", tick::share::STAMP_SHARES),
    ("first lanes", tick::filed::FIRST_LANES),
    ("lanes behind", tick::filed::LANES_BEHIND),
    ("lanes of share", tick::filed::LANES_OF_SHARE),
    ("turns behind", tick::filed::TURNS_BEHIND),
    ("pools in use", tick::filed::POOLS_IN_USE),
    ("limits in use", tick::filed::LIMITS_IN_USE),
    ("shares in use", tick::filed::SHARES_IN_USE),
    ("look, filed", tick::filed::LOOK_FILED),
    ("next token", tick::filed::NEXT_TOKEN),
    ("bounds", tick::BOUNDS),
    ("named pools", tick::NAMED_POOLS),
    ("named limits", tick::NAMED_LIMITS),
    ("candidates", tick::CANDIDATES),
    ("candidates, locked", tick::CANDIDATES_LOCKED),
    ("candidates that kept their slots", tick::KEEPING),
    ("candidates that kept their slots, locked", tick::KEEPING_LOCKED),
    ("grant", tick::GRANT),
    ("grant, plain", tick::GRANT_PLAIN),
    ("grant few", tick::few::GRANT_FEW),
    ("flush noted", tick_lock::FLUSH_NOTED),
    ("forget requests", tick::FORGET_REQUESTS),
    ("start", attempt::START),
    ("renew", attempt::RENEW),
    ("cancel", attempt::CANCEL),
    ("move", attempt::MOVE),
    ("change", change::CHANGE),
    ("delete", change::DELETE),
    ("attempts", change::ATTEMPTS),
    ("end", attempt::END),
    ("beat", attempt::BEAT),
    ("note", attempt::NOTE),
    ("lock expired", attempt::LOCK_EXPIRED),
    ("still expired", attempt::STILL_EXPIRED),
    ("leases_of", attempt::LEASES_OF),
    ("audit of a page", audit::BROKEN),
    ("strays of a page", audit::STRAYS),
    ("page of tasks", audit::TASK_PAGE),
    ("next_expiry", attempt::NEXT_EXPIRY),
    ("forget_ended", retention::FORGET_ENDED),
    ("delete pools", pool::DELETE_POOLS),
    ("pools", pool::POOLS),
    ("all pools", pool::ALL_POOLS),
    ("pool stats", pool::POOL_STATS),
    ("families", rules::FAMILIES),
    ("paused", rules::PAUSED),
    ("caps", cap::CAPS),
    ("put caps", cap::PUT_CAPS),
    ("hold caps", cap::HOLD_CAPS),
    ("is capped", cap::IS_CAPPED),
    ("pause", rules::PAUSE),
    ("resume", rules::RESUME),
    ("leases", rules::LEASES),
    ("rates", rules::RATES),
    ("put rates", rules::PUT_RATES),
    ("serving", queue::SERVING),
    ("put serving", queue::PUT_SERVING),
    ("forget serving", queue::FORGET_SERVING),
    ("queues", queue::QUEUES),
    ("delete limits", pool::DELETE_LIMITS),
    ("limits", pool::LIMITS),
    ("all limits", pool::ALL_LIMITS),
    ("put sensors", sensor::PUT),
    ("sensors", sensor::OF_KEYS),
    ("changed_sensors", sensor::CHANGED),
    ("changed_sensors, waiting", sensor::CHANGED_WAITING),
    ("end sensors", sensor::END),
    ("last change", sensor::CHANGES),
    ("serialize", attempt::SERIALIZE),
    ("lock tasks", attempt::LOCK_TASKS),
    ("lock free tasks", attempt::LOCK_FREE_TASKS),
    ("lock runs", run::statements::LOCK),
    ("wait for runs", run::statements::WAIT_FOR),
    ("old names", retention::OLD_NAMES),
    ("forget names", retention::FORGET_NAMES),
    ("number changes", sensor::numbers::NUMBER),
    ("feed", feed::FEED),
    ("last of the feed", feed::LAST),
    ("forget the feed", feed::FORGET),
    ("hold a consumer", feed::HOLD),
    ("release shards", worker::RELEASE),
    ("live workers", worker::LIVE_WORKERS),
    ("forget_workers", worker::FORGET_WORKERS),
    ("shard leases", worker::SHARDS),
    ("write shards", worker::PUT_SHARDS),
    ("put takes", sensor::life::PUT_TAKES),
    ("forget takes", sensor::life::FORGET_TAKES),
    ("forget old takes of kinds", sensor::life::FORGET_TAKES_OF_KINDS),
    ("takes", sensor::life::TAKES),
    ("put outages", sensor::life::PUT_OUTAGES),
    ("forget earlier outages", sensor::life::FORGET_EARLIER),
    ("forget ended outages", sensor::life::FORGET_ENDED),
    ("outages that go on", sensor::life::OPEN_OUTAGES),
    ("outages of targets", sensor::life::OUTAGES_OF),
    ("put poke counts", sensor::counts::PUT),
    ("forget poke counts", sensor::counts::FORGET),
    ("poke counts", sensor::counts::SUMS),
    ("namespaces", run::statements::NAMESPACES),
    ("put runs", run::statements::PUT),
    ("levels", run::statements::RAISE_LEVELS),
    ("close runs", run::statements::CLOSE),
    ("beat runs", run::statements::BEAT),
    ("take run beats", run::statements::TAKE_BEATS),
    ("open runs", run::statements::OPEN),
    ("delete runs", run::statements::DELETE),
    ("runs", run::statements::RUNS),
    ("silent_runs", run::statements::SILENT),
    ("silent_runs, locked", run::statements::LOCK_SILENT),
    ("forget_stopped_runs", run::statements::FORGET),
    ("active_runs", run::statements::ACTIVE.any),
    ("active_runs, filtered", run::statements::ACTIVE.filtered),
    ("active_run_places", run::statements::ACTIVE_PLACES.any),
    ("active_run_places, filtered", run::statements::ACTIVE_PLACES.filtered),
    ("count_active_runs", run::statements::COUNT_ACTIVE.any),
    ("count_active_runs, filtered", run::statements::COUNT_ACTIVE.filtered),
    ("page", run::statements::PAGE.any),
    ("page, filtered", run::statements::PAGE.filtered),
    ("page of places", run::statements::PAGE_PLACES.any),
    ("page of places, filtered", run::statements::PAGE_PLACES.filtered),
];

/// These sort only what was asked for: the tasks, sensors, shards and runs that one call changes, the deltas of one
/// fold, and sums by pool or key. A page of active runs sorts the places of those that started before its window,
/// which have no order, and keeps one page of them.
const SORT_WHAT_WAS_ASKED: &[&str] = &[
    "pause",
    "resume",
    "hold caps",
    "leases",
    "enqueue",
    "enqueue all new",
    "fold",
    "promote",
    "overdue",
    "overdue lanes",
    "ready lanes",
    "bounds",
    "named pools",
    "named limits",
    "folded pools",
    "folded limits",
    "shares",
    "folded shares",
    "first lanes",
    "lanes behind",
    "lanes of share",
    "turns behind",
    "start",
    "renew",
    "note",
    "cancel",
    "move",
    "change",
    "delete",
    "end",
    "expired",
    "lock expired",
    "serialize",
    "lock tasks",
    "lock free tasks",
    "beat runs",
    "take run beats",
    "lock runs",
    "wait for runs",
    "still expired",
    "forget_ended",
    "delete pools",
    "pools",
    "all pools",
    "pool stats",
    "queues",
    "forget serving",
    "limits",
    "all limits",
    "put sensors",
    "end sensors",
    "number changes",
    "write shards",
    "put takes",
    "put outages",
    "put poke counts",
    "release shards",
    "put runs",
    "close runs",
    "delete runs",
    "page",
    "page, filtered",
    "page of places",
    "page of places, filtered",
];

/// These compare each row with all elements of an array: the statuses and workflows of a filter, the lanes of a
/// page, the queues that a tick serves, and the capped queues.
const COMPARE_WITH_FEW: &[&str] = &[", filtered", "bounds", "lanes", "hold caps"];

pub(in crate::store::postgres) fn server() -> String {
    std::env::var("STATIONMASTER_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".into())
}

async fn connect(schema: &Schema) -> Client {
    let config: Config = server().parse().unwrap();
    let (mut client, connection) = config.connect(NoTls).await.expect(
        "a PostgreSQL server, named in STATIONMASTER_TEST_POSTGRES: docs/postgresql.md says how to start one",
    );
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE")).await.unwrap();
    migrate(&mut client, schema).await.unwrap();
    set(&client, schema).await;
    client
}

/// Applies a store's settings, but allows writes.
pub(super) async fn set(client: &Client, schema: &Schema) {
    let options = PostgresOptions::new().schema(schema.clone());
    client.batch_execute(&options.session()).await.unwrap();
    client.batch_execute("SET default_transaction_read_only = off").await.unwrap();
}

/// Returns the plan that is made once and kept.
async fn plan(client: &Client, schema: &Schema, sql: &str) -> Vec<String> {
    let most = (1..40).rev().find(|n| sql.contains(&format!("${n}"))).unwrap_or(0);
    let nulls = vec!["NULL"; most].join(", ");
    let call = if most == 0 { String::new() } else { format!("({nulls})") };
    client.batch_execute(&format!("PREPARE hot AS {}", schema.apply(sql))).await.unwrap();
    let lines = client.query(&format!("EXPLAIN (COSTS OFF) EXECUTE hot{call}"), &[]).await.unwrap();
    client.batch_execute("DEALLOCATE hot").await.unwrap();
    lines.iter().map(|line| line.get(0)).collect()
}

/// Tables with only a few rows, the leases (a sum of slots), the lanes (which a tick goes through), and the live
/// admitters. Of what shares hold, a single row is read, to see whether there is any.
fn is_small(step: &str) -> bool {
    let table = step.trim_start_matches("Seq Scan on ").split(' ').next();
    table.is_some_and(|table| {
        ["namespace", "lease", "lane", "serving", "family", "pause", "share_use", "cap"].contains(&table)
    })
}

pub(super) fn complaint(name: &str, step: &str) -> Option<String> {
    let step = step.trim_start_matches([' ', '-', '>']);
    let scans = step.starts_with("Seq Scan on") && !is_small(step);
    let is_sort = step == "Sort" || step.starts_with("Incremental Sort");
    let sorts = is_sort && !SORT_WHAT_WAS_ASKED.contains(&name);
    // Only an index search looks up the elements of an array.
    let compares = step.starts_with("Filter:") && step.contains("= ANY ($");
    let compares = compares && !COMPARE_WITH_FEW.iter().any(|few| name.ends_with(few));
    // A key compared here is compared with every row's key, and not looked up.
    let joined = step.strip_prefix("Join Filter:").into_iter().flat_map(|filter| filter.split(" = ").skip(1));
    let loops = joined.into_iter().any(|key| key.starts_with(char::is_alphabetic) && key.contains('.'));
    (scans || sorts || compares || loops).then(|| format!("{name}: {step}"))
}

/// Indexes that contain only what is asked for, and indexes of tables that are read whole. They need no condition.
const READ_WHOLE: &[&str] = &[
    "tick_pkey",
    "lane_pkey",
    // As many lanes as are counted.
    "lane_no_key",
    "lane_use_empty",
    "lease_expiry",
    "idle_sensing",
    // Ready tasks that kept their slots. There are no more of them than slots.
    "idle_keeping",
    "pool_pkey",
    "task_limit_pkey",
    "namespace_pkey",
    "sensor_inbox_pkey",
    "sensor_inbox_deleted",
    "feed_inbox_pkey",
    // There are few consumers.
    "consumer_pkey",
    "run_beat_pkey",
    "numbers_pkey",
    "shard_pkey",
    // The last takes of each shard, and the ongoing outages.
    "shard_take_pkey",
    "outage_open",
    "serving_pkey",
    "family_pkey",
    "pause_pkey",
    // The earliest mark that ends on its own.
    "lane_order_next",
    // One row, in several versions.
    "share_clock_pkey",
    // One row is read, to see whether there is any.
    "share_use_pkey",
    // All caps, or whether there is one.
    "cap_pkey",
    // The latest token overall.
    "rate_use_at",
];

/// Index scans from end to end, which are no better than scans of the table.
pub(super) fn scans_whole_index(steps: &[String]) -> impl Iterator<Item = String> + '_ {
    steps.iter().enumerate().filter_map(|(at, step)| {
        let index = step.split_once(" using ")?.1.split(' ').next()?;
        let details = steps[at + 1..].iter().take_while(|step| !step.trim_start().starts_with("->"));
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

pub(super) fn on(name: &str, test: impl AsyncFnOnce(Client, Schema)) {
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

/// Many rows of every kind. The tests of all sent statements also look at plans with these.
const FILL: &str = include_str!("../../../../tests/postgres_plans/fill.sql");

const EMPTY: &str = "DELETE FROM sm.task; DELETE FROM sm.ready; DELETE FROM sm.lease; DELETE FROM sm.idle; DELETE FROM sm.delta;
    DELETE FROM sm.lane; DELETE FROM sm.lane_use; DELETE FROM sm.task_limit; DELETE FROM sm.limit_use;
    DELETE FROM sm.pool; DELETE FROM sm.pool_use; DELETE FROM sm.share_use; DELETE FROM sm.request; DELETE FROM sm.beat;
    DELETE FROM sm.sensor; DELETE FROM sm.sensor_change; DELETE FROM sm.sensor_inbox;
    DELETE FROM sm.feed; DELETE FROM sm.feed_inbox; DELETE FROM sm.consumer; DELETE FROM sm.worker; DELETE FROM sm.shard; DELETE FROM sm.namespace;
    DELETE FROM sm.level; DELETE FROM sm.run; DELETE FROM sm.attempt; DELETE FROM sm.note";

async fn analyze(client: &Client, schema: &Schema) {
    let tables = format!("SELECT tablename::text FROM pg_tables WHERE schemaname = '{schema}'");
    for table in client.query(&tables, &[]).await.unwrap() {
        let table: &str = table.get(0);
        client.batch_execute(&schema.apply(&format!("ANALYZE sm.{table}"))).await.unwrap();
    }
}

/// Statistics may date from a moment when almost everything, or nothing, waited.
#[test]
fn statistics_change_no_plan() {
    on("full", async |client, schema| {
        for (waiting, other) in [(3000, 3), (3, 3000)] {
            client.batch_execute(&schema.apply(EMPTY)).await.unwrap();
            let fill = FILL.replace("{waiting}", &waiting.to_string()).replace("{other}", &other.to_string());
            client.batch_execute(&schema.apply(&fill)).await.unwrap();
            analyze(&client, &schema).await;
            assert_eq!(complaints(&client, &schema).await, [""; 0], "{waiting} waiting, {other} not");
        }
    });
}

/// Only retention looks up rows in the first three. The last one has only ready tasks that kept their slots.
const WALKED: &[&str] = &["request_at", "turn_at", "worker_expiry", "idle_keeping"];

/// Returns the index scans whose condition does not bound the index's first column: they walk the whole index.
async fn walks_of_whole_indexes(client: &Client, schema: &Schema) -> Vec<String> {
    let firsts = format!(
        "SELECT indexrelid::regclass::text, attname::text FROM pg_index JOIN pg_attribute
           ON attrelid = indrelid AND attnum = indkey[0] JOIN pg_class ON pg_class.oid = indexrelid
         WHERE relnamespace = '\"{schema}\"'::regnamespace"
    );
    let firsts: HashMap<String, String> = client
        .query(&firsts, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| {
            let index: String = row.get(0);
            (index.rsplit('.').next().unwrap().to_owned(), row.get(1))
        })
        .collect();
    let mut found = Vec::new();
    for (name, sql) in HOT {
        let steps = plan(client, schema, sql).await;
        for (at, step) in steps.iter().enumerate() {
            let index = step.split_once(" using ").and_then(|(_, rest)| rest.split(' ').next());
            let index = index.filter(|index| !WALKED.contains(index));
            let Some(first) = index.and_then(|index| firsts.get(index)) else { continue };
            let condition = steps[at + 1..].first().filter(|next| next.contains("Index Cond:"));
            let of_index = |text: &String| {
                text.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '.')
                    .any(|word| word == first)
            };
            if condition.is_some_and(|condition| !of_index(condition)) {
                found.push(format!("{name}: {step}"));
            }
        }
    }
    found
}

/// While an old snapshot keeps many dead rows, the server knows few rows on many pages. A search by the primary key
/// then seems to read much of its index, and any other index with the same column looks as good.
#[test]
fn no_index_is_walked_as_a_whole_for_some_of_its_rows() {
    on("dead", async |client, schema| {
        let fill = |rows: &str| schema.apply(&FILL.replace("{waiting}", rows).replace("{other}", rows));
        for text in [fill("3000"), schema.apply(EMPTY), fill("3")] {
            client.batch_execute(&text).await.unwrap();
        }
        let many =
            "INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, holder)
            SELECT i, 1, md5('l')::uuid, 1, i, 0, 0, 0, 'h' FROM generate_series(1000, 50000) i;
            DELETE FROM sm.lease WHERE no >= 1000";
        client.batch_execute(&schema.apply(many)).await.unwrap();
        analyze(&client, &schema).await;
        assert_eq!(walks_of_whole_indexes(&client, &schema).await, [""; 0]);
        let tempting = "DROP INDEX sm.lease_expiry; CREATE INDEX lease_expiry ON sm.lease (expires_at, no); ANALYZE sm.lease";
        client.batch_execute(&schema.apply(tempting)).await.unwrap();
        assert_ne!(walks_of_whole_indexes(&client, &schema).await, [""; 0], "the check sees nothing");
    });
}

#[test]
fn the_check_sees_scans_and_sorts() {
    on("bad", async |client, schema| {
        for bad in [
            "SELECT no FROM sm.task WHERE retry = 'x'",
            "SELECT no FROM sm.task ORDER BY payload",
            "SELECT no FROM sm.task WHERE no = 1 AND rank = ANY ($1::bigint[])",
            "WITH many AS MATERIALIZED (SELECT no FROM sm.task WHERE no = 1) SELECT FROM many JOIN many other USING (no)",
        ] {
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
        assert!(steps.contains("Index Scan using ready_pkey on ready"), "{steps}");
        let range = "Index Cond: ((lane = page.lane) AND (ROW(rank, logical_date, map_index, no) >= ";
        assert!(steps.contains(range), "{steps}");
    });
}

/// Indexes bound what a window reads on every side.
#[test]
fn active_runs_are_read_by_ranges_alone() {
    on("ranges", async |client, schema| {
        for (name, scan, sql) in [
            ("records", "Index Scan", run::statements::ACTIVE.any),
            ("places", "Index Only Scan", run::statements::ACTIVE_PLACES.any),
        ] {
            let steps = plan(&client, &schema, sql).await;
            let found = steps.iter().enumerate().filter(|(_, step)| step.contains(" using run_"));
            let found: Vec<String> = found.map(|(at, step)| format!("{step} {}", steps[at + 1])).collect();
            let expected = [
                ("run_pkey", "(ROW(start, id) > ROW(GREATEST($2, $4), asked.low)) AND (start < $3))"),
                ("run_open", "(start < $2))"),
                ("run_node_stop", "AND (stop >= $2))"),
                ("run_node_start", "AND (start < $2))"),
            ];
            assert_eq!(found.len(), expected.len(), "{name}: {steps:?}");
            for (step, (index, range)) in found.iter().zip(expected) {
                assert!(
                    step.contains(&format!("{scan} using {index} ")) && step.ends_with(range),
                    "{name}: {step}"
                );
            }
        }
    });
}

/// Returns how many rows of this table a plan's steps read, including those that they refused, and how often they
/// searched it. The server reports rows per search as a rounded average.
fn rows_read(step: &serde_json::Value, table: &str) -> (i64, i64) {
    let number = |field: &str| step[field].as_i64().unwrap_or(0);
    let loops = if step["Relation Name"] == table { number("Actual Loops") } else { 0 };
    let own = ((number("Actual Rows") + number("Rows Removed by Filter")) * loops, loops);
    let below = step["Plans"].as_array().into_iter().flatten().map(|step| rows_read(step, table));
    below.fold(own, |sum, more| (sum.0 + more.0, sum.1 + more.1))
}

/// Runs of all lengths, every fifth of them open.
#[test]
fn a_window_reads_the_rows_that_it_answers() {
    on("window", async |client, schema| {
        let fill = "INSERT INTO sm.namespace (no, name) VALUES ('ca978112-ca1b-bdca-fac2-31b39a23dc4d', 'a');
            INSERT INTO sm.run (ns, start, status, method, id)
            SELECT 'ca978112-ca1b-bdca-fac2-31b39a23dc4d', i * 7919 % 5003 - 2500, 0, 0, 'r' || i FROM generate_series(0, 1999) i";
        client.batch_execute(&schema.apply(fill)).await.unwrap();
        let runs: Vec<(i64, Option<i64>)> = (0..2000_i64)
            .map(|i| (i * 7919 % 5003 - 2500, i))
            .map(|(start, i)| (start, (i % 5 > 0).then(|| start + (i * 31 % 4096) / (1 << (i % 12)))))
            .collect();
        let closed =
            || runs.iter().enumerate().filter_map(|(i, (_, stop))| Some((format!("r{i}"), (*stop)?)));
        let (ids, stops): (Vec<String>, Vec<i64>) = closed().unzip();
        let (names, statuses) = (vec![Digest::of("a"); ids.len()], vec![5_i64; ids.len()]);
        let close = schema.apply(run::statements::CLOSE);
        let rows = client.query(&*close, &[&names, &ids, &stops, &statuses]).await.unwrap();
        assert_eq!(rows.len(), ids.len());
        let places = format!("PREPARE hot AS {}", schema.apply(run::statements::ACTIVE_PLACES.any));
        client.batch_execute(&places).await.unwrap();
        for (begin, end) in
            [(0, 1), (-2500, 2503), (-1024, -1000), (511, 513), (-1, 0), (2700, 2900), (9000, 9999)]
        {
            let explain = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot('{{}}', {begin}, {end}, -9000000000000, '', '', 9000000)"
            );
            let answer = client.simple_query(&explain).await.unwrap();
            let text = answer.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            let plan: serde_json::Value = serde_json::from_str(text.unwrap()).unwrap();
            let active =
                |(start, stop): &&(i64, Option<i64>)| *start < end && stop.is_none_or(|stop| stop >= begin);
            let expected = runs.iter().filter(active).count() as i64;
            assert_eq!(plan[0]["Plan"]["Actual Rows"], expected, "[{begin}, {end})");
            let (read, searches) = rows_read(&plan[0]["Plan"], "run");
            assert!((read - expected).abs() * 2 <= searches, "[{begin}, {end}) read {read} of {expected}");
            assert!(searches <= 67, "{searches} searches");
        }
    });
}

/// Returns how many rows all steps of a plan read, compared and passed on.
fn rows_handled(step: &serde_json::Value) -> f64 {
    let number = |field: &str| step[field].as_f64().unwrap_or(0.0);
    let removed = number("Rows Removed by Join Filter") + number("Rows Removed by Filter");
    let own = (number("Actual Rows") + removed) * number("Actual Loops");
    own + step["Plans"].as_array().into_iter().flatten().map(rows_handled).sum::<f64>()
}

/// As many lanes as tasks, and all tasks early, with plans made while the tables were empty.
#[test]
fn what_a_tick_does_grows_in_proportion_to_its_tasks_and_lanes() {
    on("linear", async |client, schema| {
        let mut prepare = String::new();
        for (name, sql, nulls) in
            [("fold", fold::FOLD, 2), ("promote", promote::PROMOTE, 2), ("grant", tick::GRANT, 21)]
        {
            let nulls = vec!["NULL"; nulls].join(", ");
            prepare.push_str(&format!(
                "PREPARE \"{name}\" AS {}; EXPLAIN EXECUTE \"{name}\"({nulls});",
                schema.apply(sql)
            ));
        }
        client.batch_execute(&prepare).await.unwrap();
        let mut handled = Vec::new();
        for size in [200, 800] {
            let fill = format!(
                "BEGIN;
                 INSERT INTO sm.task (no, lane, rank, logical_date, map_index, priority, slots, enqueued_at, attempt_runs,
                     namespace, workflow, run, task, pool, limits, payload)
                 SELECT i, sm._lane_digest('p' || i, 1, '[\"k' || i || '\"]', NULL), 1, 0, -1, 0, 1, 0, 0, 'n', 'w', 'r', 't' || i, 'p' || i,
                     '[\"k' || i || '\"]', '' FROM generate_series(1, {size}) i;
                 INSERT INTO sm.pool (name) SELECT pool FROM sm.task;
                 INSERT INTO sm.pool_use SELECT pool, 0, 1 FROM sm.task;
                 INSERT INTO sm.limit_use SELECT limits::json ->> 0, 0, 1, 1 FROM sm.task;
                 INSERT INTO sm.lane SELECT lane, no, slots, pool, limits FROM sm.task;
                 INSERT INTO sm.lane_use SELECT lane, 0, 0, 1, 9, 0, 0, 0, '{{}}' FROM sm.task;
                 INSERT INTO sm.idle (no, state, lane, rank, logical_date, map_index, due, ready_at)
                 SELECT no, 5, lane, rank, logical_date, map_index, 1, 0 FROM sm.task;
                 INSERT INTO sm.delta (lane, ready, tasks, slots, leases, came, rank, logical_date, map_index, no)
                 SELECT lane, 1, 0, 1, 1, 1, rank, logical_date, map_index, no FROM sm.task"
            );
            client.batch_execute(&schema.apply(&fill)).await.unwrap();
            let ask = schema
                .apply("SELECT array_agg(no)::text, array_agg(lane)::text, array_agg(0)::text FROM sm.task");
            let row = client.query_one(&ask, &[]).await.unwrap();
            let [numbers, lanes, zeros] = [0, 1, 2].map(|at| row.get::<_, String>(at));
            let mut rows = Vec::new();
            for call in [
                "fold(10000, 0)".to_owned(),
                "promote(1, 10000)".to_owned(),
                format!(
                    "\"grant\"('{numbers}', 'h', 9, 1, 'q', NULL, '{lanes}', '{zeros}', '{zeros}', '{zeros}', '{zeros}', '{{}}', '{{}}', 1, 1, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', 0)"
                ),
            ] {
                let answer = client
                    .simple_query(&format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {call}"))
                    .await
                    .unwrap();
                let text = answer.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                let plan: serde_json::Value = serde_json::from_str(text.unwrap()).unwrap();
                rows.push(rows_handled(&plan[0]["Plan"]));
            }
            client.batch_execute("ROLLBACK").await.unwrap();
            handled.push(rows);
        }
        for (name, (few, many)) in ["fold", "promote", "grant"].iter().zip(handled[0].iter().zip(&handled[1]))
        {
            assert!(*few > 200.0, "{name} had nothing to do");
            assert!(many / few < 6.0, "{name}: {few} rows for 200 tasks, {many} for 800");
        }
    });
}

/// With plans made while the tables were empty, as in a new store.
#[test]
fn what_changes_runs_grows_in_proportion_to_them() {
    on("runs", async |client, schema| {
        const CALLS: &[(&str, &str, &str)] = &[
            ("beat", run::statements::BEAT, "'{ns}', '{ids}', '{instants}'"),
            ("open", run::statements::OPEN, "'{ns}', '{ids}'"),
            ("lock", run::statements::LOCK, "'{ns}', '{ids}'"),
            ("wait", run::statements::WAIT_FOR, "'{ns}', '{ids}'"),
            ("close", run::statements::CLOSE, "'{ns}', '{ids}', '{instants}', '{instants}'"),
            ("forget", run::statements::FORGET, "9999, '{}', '{0}', '{9999}', 9999"),
            ("delete", run::statements::DELETE, "'{ns}', '{ids}'"),
        ];
        let mut prepare = String::new();
        for (name, sql, given) in CALLS {
            let nulls = vec!["NULL"; given.split(", ").count()].join(", ");
            prepare.push_str(&format!(
                "PREPARE \"{name}\" AS {}; EXPLAIN EXECUTE \"{name}\"({nulls});",
                schema.apply(sql)
            ));
        }
        client.batch_execute(&prepare).await.unwrap();
        let mut handled = Vec::new();
        for size in [200, 800] {
            let fill = format!(
                "BEGIN;
                 INSERT INTO sm.namespace (no, name) VALUES (md5('n')::uuid, 'n');
                 INSERT INTO sm.run (ns, node, start, stop, status, method, id)
                 SELECT md5('n')::uuid, CASE WHEN i > {size} THEN i END, i, CASE WHEN i > {size} THEN i END, 0, 0, 'r' || i
                 FROM generate_series(1, 2 * {size}) i"
            );
            client.batch_execute(&schema.apply(&fill)).await.unwrap();
            let ask = schema.apply(
                "SELECT array_agg(ns)::text, array_agg(id)::text, array_agg(start)::text FROM sm.run WHERE stop IS NULL",
            );
            let row = client.query_one(&ask, &[]).await.unwrap();
            let [ns, ids, instants] = [0, 1, 2].map(|at| row.get::<_, String>(at));
            let mut rows = Vec::new();
            for (name, _, given) in CALLS {
                let given =
                    given.replace("{ns}", &ns).replace("{ids}", &ids).replace("{instants}", &instants);
                let explain =
                    format!("SAVEPOINT before; EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE \"{name}\"({given})");
                let answer = client.simple_query(&explain).await.unwrap();
                let text = answer.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                let plan: serde_json::Value = serde_json::from_str(text.unwrap()).unwrap();
                rows.push(rows_handled(&plan[0]["Plan"]));
                client.batch_execute("ROLLBACK TO before").await.unwrap();
            }
            client.batch_execute("ROLLBACK").await.unwrap();
            handled.push(rows);
        }
        for ((name, ..), (few, many)) in CALLS.iter().zip(handled[0].iter().zip(&handled[1])) {
            assert!(*few > 200.0, "{name} had nothing to do");
            assert!(many / few < 6.0, "{name}: {few} rows for 200 runs, {many} for 800");
        }
    });
}

/// A host's transaction may have little memory for hashes, and the server plans it for the table sizes that it
/// finds.
#[test]
fn a_renewal_grows_in_proportion_to_its_leases_with_little_memory() {
    on("memory", async |client, schema| {
        let own = "RESET ALL; SET work_mem = '64kB'; SET plan_cache_mode = force_custom_plan";
        client.batch_execute(own).await.unwrap();
        let prepare = format!("PREPARE renew AS {}", schema.apply(attempt::RENEW));
        client.batch_execute(&prepare).await.unwrap();
        let mut handled = Vec::new();
        for size in [500, 4_000] {
            let fill = format!(
                "BEGIN;
                 INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, holder)
                 SELECT i, 1, md5('l')::uuid, 1, 0, 0, 0, 0, 'h' FROM generate_series(1, {size}) i;
                 INSERT INTO sm.beat (no, epoch, expires_at) SELECT i, 1, 1 FROM generate_series(1, {size}) i;
                 ANALYZE sm.lease; ANALYZE sm.beat"
            );
            client.batch_execute(&schema.apply(&fill)).await.unwrap();
            let numbers: Vec<String> = (1..=size).map(|no| no.to_string()).collect();
            let epochs = vec!["1"; size].join(",");
            let explain = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE renew('{{{}}}', '{{{epochs}}}')",
                numbers.join(",")
            );
            let answer = client.simple_query(&explain).await.unwrap();
            let text = answer.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            let plan: serde_json::Value = serde_json::from_str(text.unwrap()).unwrap();
            handled.push(rows_handled(&plan[0]["Plan"]));
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        assert!(handled[0] > 500.0 && handled[1] / handled[0] < 12.0, "{handled:?} rows for 500 and 4,000");
    });
}
