//! The statements of `docs/sql.md` do what the crate does, and nothing that the crate does not find.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "hosts/contract.rs"]
mod contract;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use contract::{statement, statements};
use stationmaster::backoff::{Decision, History, RetryKey, RetryPolicy, decide};
use stationmaster::ops::{AdmitRequest, Finish, Finished};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::Durability;
use stationmaster::store::SqliteStore;
use stationmaster::store::sqlite::rusqlite::types::Value;
use stationmaster::store::sqlite::rusqlite::{self, Connection, Params, params};
use stationmaster::store::sqlite::{SqliteOptions, migrate};
use stationmaster::task::LeaseLoss;
use stationmaster::testing::{Snapshot, Watch};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, Timestamp};

const NOW: i64 = 1_000_000;

fn now() -> Timestamp {
    Timestamp::from_micros(NOW)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("prod", "nightly", "r1", task).unwrap()
}

fn retry() -> RetryPolicy {
    RetryPolicy::exponential(Duration::from_secs(3)).max_attempts(3).build().unwrap()
}

/// A store, and a connection of a host's to the same file.
struct World {
    store: SqliteStore,
    host: Connection,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        let host = open_as_host(&path);
        let store = SqliteStore::open(&path, SqliteOptions::new().durability(Durability::Process)).unwrap();
        store
            .write(|tx| {
                tx.put_pools(&[
                    PoolSpec::new("default_pool", Slots::Limited(3))?,
                    PoolSpec::new("db", Slots::Unlimited)?,
                ])?;
                tx.put_limits(&[stationmaster::admission::limits::LimitSpec::new("tenant".try_into()?, 5)?])
            })
            .unwrap();
        Self { store, host, _dir: dir }
    }

    /// Runs one statement of the contract in a transaction of the host's.
    fn run(&self, name: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.host.execute_batch("BEGIN IMMEDIATE")?;
        let done = self.host.execute(statement(name), params);
        self.host.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        done
    }

    fn enqueue(&self, task: &NewTask, rank: Option<i64>) {
        let key = &task.key;
        let limits = serde_json::to_string(&task.check(now()).unwrap().lane.limits).unwrap();
        let retry = (task.retry != RetryPolicy::none()).then(|| serde_json::to_string(&task.retry).unwrap());
        let losses = match task.lease_loss {
            default if default == LeaseLoss::default() => None,
            LeaseLoss::Requeue { at_most } => Some(at_most),
            _ => Some(0),
        };
        let values = params![
            NOW,
            key.namespace.as_str(),
            key.workflow.as_str(),
            key.run.as_str(),
            key.task.as_str(),
            key.map_index,
            task.pool.as_str(),
            task.pool_slots,
            limits,
            task.priority,
            rank,
            task.logical_date.map(Timestamp::as_micros),
            task.not_before.map(Timestamp::as_micros),
            retry,
            losses,
            task.payload,
        ];
        self.run("enqueue", values).unwrap();
    }

    fn admit(&self, at: i64) -> Vec<TaskRecord> {
        let order = AdmitRequest::new(
            "h".try_into().unwrap(),
            format!("tick {at}").as_str().try_into().unwrap(),
            99,
            Duration::from_secs(9),
        );
        self.store.write(|tx| tx.admit(Timestamp::from_micros(at), &order)).unwrap().granted
    }

    fn start(&self, lease: LeaseRef, at: i64) -> rusqlite::Result<usize> {
        self.run("start", params![at, lease.id.0, lease.epoch])
    }

    fn finish(
        &self,
        lease: LeaseRef,
        at: i64,
        outcome: &str,
        text: Option<&str>,
        retry_at: Option<i64>,
    ) -> rusqlite::Result<usize> {
        let (value, message) = if outcome == "success" { (text, None) } else { (None, text) };
        self.run("finish", params![at, lease.id.0, lease.epoch, outcome, value, message, retry_at])
    }

    fn state(&self, keys: &[TaskKey]) -> Snapshot {
        let limits = ["tenant", "a", "b", "\"é\\"].map(|key| key.try_into().unwrap());
        let watch = Watch { tasks: keys.into(), limits: limits.into(), ..Watch::default() };
        let seen = self.store.read(|tx| Ok(Snapshot::take(tx, &watch)?)).unwrap();
        assert_eq!(seen.audit(), []);
        seen
    }
}

/// A host that trusts no schema, and whose conflict clauses and foreign keys are its own.
fn open_as_host(path: &Path) -> Connection {
    let host = Connection::open(path).unwrap();
    host.execute_batch(
        "PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON",
    )
    .unwrap();
    host.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)").unwrap();
    host
}

fn many_kinds_of_tasks() -> Vec<NewTask> {
    let new = |name: &str| NewTask::new(key(name));
    let limit = |task: NewTask, keys: &[&str]| {
        keys.iter().fold(task, |task, key| task.limit((*key).try_into().unwrap()))
    };
    let mut mapped = new("plain");
    mapped.key.map_index = Some(7);
    vec![
        new("plain"),
        mapped,
        limit(new("limited"), &["tenant", "b", "a", "b"]),
        limit(new("limited too"), &["a", "b", "tenant"]),
        limit(new("odd key"), &["\"é\\"]),
        new("urgent").priority(i32::MAX).payload("{\"order\": 7}"),
        new("idle").priority(i32::MIN).logical_date(Timestamp::from_micros(-5)),
        new("later").not_before(Timestamp::from_micros(NOW + 500)),
        new("due already").not_before(Timestamp::from_micros(NOW)),
        new("due before").not_before(Timestamp::from_micros(NOW - 9)),
        new("wide").pool("db".try_into().unwrap()).pool_slots(1_000_000),
        new("nowhere").pool("no such pool".try_into().unwrap()),
        new("tried again").retry(retry()).lease_loss(LeaseLoss::Requeue { at_most: 2 }),
        new("never again").lease_loss(LeaseLoss::Fail),
        new("plain").priority(9),
        limit(new("plain"), &["never seen"]),
    ]
}

#[test]
fn what_sql_enqueues_starts_and_finishes_is_what_the_crate_does() {
    let (ours, sql) = (World::new(), World::new());
    let tasks = many_kinds_of_tasks();
    let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
    for task in &tasks {
        ours.store.write(|tx| tx.enqueue(now(), std::slice::from_ref(task))).unwrap();
        sql.enqueue(task, None);
        assert_eq!(sql.state(&keys), ours.state(&keys), "{}", task.key);
    }

    let mut seen = BTreeSet::new();
    for round in (1..20).map(|round| NOW + round * 1_000_000) {
        let granted = ours.admit(round);
        assert_eq!(sql.admit(round), granted, "the admitter takes both alike");
        for (at, task) in granted.iter().enumerate() {
            let lease = task.lease_ref();
            // Some callers' clocks are behind: what they record must not run backwards.
            let (started, ended) = (round - 700_000 * (at as i64 % 4), round - 800_000 * (at as i64 % 5));
            if at % 2 == 0 {
                ours.store.write(|tx| tx.start(Timestamp::from_micros(started), &[lease])).unwrap();
                sql.start(lease, started).unwrap();
            }
            let (mut name, mut text, mut retry_at) = ("failed", None, None);
            let end = match (task.key.task.as_str(), at % 3) {
                ("plain", _) if task.attempt == 1 => {
                    name = "given_back";
                    Finish::given_back(lease)
                }
                ("tried again", _) | (_, 0) => {
                    let (message, at) = decided(&sql, lease, &task.key, ended);
                    (text, retry_at) = (Some(message), at);
                    Finish::failed(lease, "no route")
                }
                (_, 1) => {
                    (name, text) = ("success", Some("7 rows".to_owned()));
                    Finish::success_with(lease, "7 rows")
                }
                _ => {
                    (name, text) = ("skipped", Some("not needed".to_owned()));
                    Finish::skipped(lease, "not needed")
                }
            };
            ours.store
                .write(|tx| tx.finish(Timestamp::from_micros(ended), std::slice::from_ref(&end)))
                .unwrap();
            sql.finish(lease, ended, name, text.as_deref(), retry_at).unwrap();
            seen.insert((name, retry_at.is_some()));
            assert_eq!(sql.state(&keys), ours.state(&keys), "{} of {round}", task.key);
        }
    }
    let all =
        [("failed", false), ("failed", true), ("given_back", false), ("skipped", false), ("success", false)];
    assert_eq!(seen, all.into());
}

/// What the documentation tells a host to do with a failed attempt.
fn decided(world: &World, lease: LeaseRef, key: &TaskKey, at: i64) -> (String, Option<i64>) {
    let row = |row: &rusqlite::Row<'_>| {
        Ok((
            row.get::<_, u32>("attempt")? - row.get::<_, u32>("forgiven")?,
            row.get::<_, Option<String>>("retry")?,
            row.get::<_, Option<i64>>("first_started_at")?.or(row.get("queued_at")?),
            row.get::<_, i64>("logical_date")?,
        ))
    };
    let found = world.host.query_row(statement("status_by_id"), [lease.id.0], row).unwrap();
    let (attempt, policy, first, date) = found;
    let policy = policy.map_or(RetryPolicy::none(), |json| serde_json::from_str(&json).unwrap());
    let history = History::new(attempt, Timestamp::from_micros(first.unwrap()), Timestamp::from_micros(at));
    let key = RetryKey::new(key).logical_date(Timestamp::from_micros(date));
    match decide(&policy, &key, &history) {
        Decision::RetryAt(at) => ("no route".into(), Some(at.as_micros())),
        Decision::GiveUp(why) => (format!("no route ({why})"), None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rank_that_ages_is_the_hosts_to_give() {
    let (ours, sql) = (World::new(), World::new());
    let ageing = stationmaster::admission::Ageing::Linear { period: Duration::from_secs(60) };
    let task = NewTask::new(key("t")).priority(3).not_before(Timestamp::from_micros(NOW + 9));
    ours.store.write(|tx| tx.enqueue_ageing(now(), ageing, std::slice::from_ref(&task))).unwrap();
    sql.enqueue(&task, Some(ageing.rank(3, Timestamp::from_micros(NOW + 9))));
    assert_eq!(sql.state(&[key("t")]), ours.state(&[key("t")]));
}

#[test]
fn a_stale_lease_fails_the_hosts_transaction_and_changes_nothing() {
    let world = World::new();
    world.enqueue(&NewTask::new(key("t")).lease_loss(LeaseLoss::Requeue { at_most: 9 }), None);
    let stale = world.admit(NOW)[0].lease_ref();
    world.start(stale, NOW).unwrap();
    let started = world.state(&[key("t")]);
    world.start(stale, NOW + 1).unwrap();
    assert_eq!(world.state(&[key("t")]), started, "a second start changes nothing");
    let later = NOW + 60_000_000;
    assert_eq!(world.store.write(|tx| tx.reap(Timestamp::from_micros(later), 9)).unwrap().len(), 1);
    let lease = world.admit(later)[0].lease_ref();
    let before = world.state(&[key("t")]);

    let none = LeaseRef::new(stationmaster::TaskId(99), 1);
    for gone in [stale, LeaseRef::new(lease.id, lease.epoch + 1), none] {
        let refused = [
            world.start(gone, later),
            world.finish(gone, later, "success", None, None),
            world.finish(gone, later, "given_back", None, None),
        ];
        for refused in refused {
            let refused = refused.unwrap_err();
            let code = refused.sqlite_error().unwrap();
            assert_eq!(code.extended_code, rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER);
            assert!(refused.to_string().starts_with("stationmaster: stale lease"), "{refused}");
        }
    }
    // As a host would do it: its own row goes with ours.
    let mut host = open_beside(&world);
    let attempt = (|| {
        let tx = host.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute("INSERT INTO orders VALUES (1, 'shipped')", [])?;
        tx.execute(
            statement("finish"),
            params![later, stale.id.0, stale.epoch, "success", "x", None::<&str>, None::<i64>],
        )?;
        tx.commit()
    })();
    assert!(attempt.is_err());
    let orders: i64 = host.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!((orders, world.state(&[key("t")])), (0, before));
    world.finish(lease, later, "success", None, None).unwrap();
}

#[test]
fn a_repeated_finish_is_told_apart_from_a_stale_one() {
    let world = World::new();
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).build().unwrap();
    let tasks = ["success", "skipped", "failed", "given_back", "retried"];
    tasks.iter().for_each(|name| world.enqueue(&NewTask::new(key(name)).retry(retry.clone()), None));
    let again = |task: &TaskRecord, outcome: &str, text: Option<&str>, retry_at: Option<i64>| {
        let refused =
            world.finish(task.lease_ref(), NOW + 2, outcome, text, retry_at).unwrap_err().to_string();
        match refused.split(':').nth(1) {
            Some(" finished like this before") => true,
            Some(" stale lease") => false,
            _ => panic!("{refused}"),
        }
    };
    for task in world.admit(NOW) {
        let (outcome, retry_at) = match task.key.task.as_str() {
            "retried" => ("failed", Some(NOW + 9)),
            outcome => (outcome, None),
        };
        let text = (outcome != "given_back").then_some("x");
        world.finish(task.lease_ref(), NOW + 1, outcome, text, retry_at).unwrap();
        let before = world.state(std::slice::from_ref(&task.key));
        for other in ["success", "skipped", "failed", "given_back"] {
            assert_eq!(again(&task, other, text, None), other == outcome, "{} as {other}", task.key);
        }
        assert!(!again(&task, "success", Some("y"), None), "another value is not stored");
        assert_eq!(world.state(std::slice::from_ref(&task.key)), before);
        // The crate reads what the statement wrote, and the other way round.
        let ends = [Finish::given_back(task.lease_ref())];
        let already = world.store.write(|tx| tx.finish(Timestamp::from_micros(NOW + 2), &ends)).unwrap();
        assert_eq!(matches!(already[..], [Finished::Already(_)]), outcome == "given_back");
    }
}

fn open_beside(world: &World) -> Connection {
    Connection::open(world.host.path().unwrap()).unwrap()
}

#[test]
fn what_was_rolled_back_never_was() {
    let world = World::new();
    let before = world.state(&[key("t")]);
    world.host.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.host.execute(statement("enqueue"), good()).unwrap();
    let seen: String = world
        .host
        .query_row(statement("status"), params!["prod", "nightly", "r1", "t", None::<i64>], |row| {
            row.get("state")
        })
        .unwrap();
    assert_eq!(seen, "scheduled");
    world.host.execute_batch("ROLLBACK").unwrap();
    assert_eq!(world.state(&[key("t")]), before);
}

fn good() -> [Value; 16] {
    use Value::{Integer, Null};
    let text = |text: &str| Value::Text(text.into());
    [
        Integer(NOW),
        text("prod"),
        text("nightly"),
        text("r1"),
        text("t"),
        Null,
        text("default_pool"),
        Integer(1),
        text(r#"["a","b"]"#),
        Integer(0),
        Null,
        Null,
        Null,
        Null,
        Null,
        text(""),
    ]
}

#[test]
fn what_the_crate_would_refuse_is_refused_whatever_the_conflict_clause() {
    use Value::{Blob, Integer, Null, Real};
    let world = World::new();
    let text = |text: &str| Value::Text(text.into());
    let long = "x".repeat(513);
    let keys: Vec<String> = (0..17).map(|n| format!("{n:02}")).collect();
    let mut bad: Vec<(usize, Value)> = Vec::new();
    for name in 1..=4 {
        bad.extend(
            [Null, text(""), text("a\0b"), text(&long), Integer(1), Blob(vec![1])].map(|value| (name, value)),
        );
    }
    bad.extend([Null, text(""), text(&long)].map(|value| (6, value)));
    bad.extend([Null, text("1"), Real(1.0)].map(|value| (0, value)));
    bad.extend([Integer(-1), Integer(1 << 32), text("1")].map(|value| (5, value)));
    bad.extend([Null, Integer(0), Integer(1 << 31), Real(1.5)].map(|value| (7, value)));
    let arrays = [
        "",
        "{}",
        "[1]",
        r#"["b","a"]"#,
        r#"["a","a"]"#,
        r#"["a", "b"]"#,
        r#"[""]"#,
        r#"["\u00e9"]"#,
        r#"["\n"]"#,
    ];
    bad.extend(arrays.map(|value| (8, text(value))));
    bad.extend([Null, text(&serde_json::to_string(&keys).unwrap())].map(|value| (8, value)));
    bad.push((8, text(&serde_json::to_string(&[long]).unwrap())));
    bad.extend([Null, Integer(1 << 31), text("x")].map(|value| (9, value)));
    bad.extend((10..=12).map(|at| (at, text("soon"))));
    bad.extend([text("{"), Integer(1)].map(|value| (13, value)));
    let first = Timestamp::MIN.as_micros();
    let last = Timestamp::MAX.as_micros();
    for at in [0, 11, 12] {
        bad.extend([first - 1, last + 1, i64::MIN, i64::MAX].map(|value| (at, Integer(value))));
    }
    bad.extend([Integer(-1), text("x")].map(|value| (14, value)));
    bad.extend([Null, Integer(1), text(&"x".repeat((1 << 20) + 1))].map(|value| (15, value)));
    for clause in ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL", "INSERT OR ROLLBACK"]
    {
        let sql = statement("enqueue").replacen("INSERT", clause, 1);
        for (at, value) in &bad {
            let mut values = good();
            values[*at] = value.clone();
            let done = world.host.execute(&sql, rusqlite::params_from_iter(values));
            let refused = done.expect_err(&format!("{clause}: parameter {} of {value:?}", at + 1));
            let code = refused.sqlite_error().unwrap().extended_code;
            assert_eq!(code, rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER, "parameter {} of {value:?}", at + 1);
        }
    }
    assert_eq!(world.state(&[key("t")]), World::new().state(&[key("t")]), "nothing was changed");

    world.run("enqueue", good()).unwrap();
    let lease = world.admit(NOW)[0].lease_ref();
    let before = world.state(&[key("t")]);
    let long = "x".repeat((1 << 20) + 1);
    for (outcome, message, retry_at) in
        [("done", None, None), ("success", None, Some(5)), ("failed", Some(long.as_str()), None)]
    {
        assert!(world.finish(lease, NOW, outcome, message, retry_at).is_err(), "{outcome}");
    }
    for clause in ["INSERT OR IGNORE", "INSERT OR REPLACE"] {
        for (name, values) in [
            ("start", vec![text("x"), Integer(lease.id.0), Integer(lease.epoch)]),
            ("start", vec![Integer(NOW), Integer(lease.id.0), Integer(0)]),
            (
                "finish",
                vec![Null, Integer(lease.id.0), Integer(lease.epoch), text("success"), Null, Null, Null],
            ),
            ("finish", vec![Integer(NOW), Integer(lease.id.0), Integer(lease.epoch), Null, Null, Null, Null]),
        ] {
            let sql = statement(name).replacen("INSERT", clause, 1);
            assert!(
                world.host.execute(&sql, rusqlite::params_from_iter(&values)).is_err(),
                "{name} {values:?}"
            );
        }
    }
    assert_eq!(world.state(&[key("t")]), before);
}

#[test]
fn instants_are_taken_as_far_as_the_crate_reads_them() {
    let world = World::new();
    for (at, logical_date) in [Timestamp::MIN, Timestamp::MAX].into_iter().enumerate() {
        let mut values = good();
        values[4] = Value::Text(format!("t{at}"));
        values[11] = Value::Integer(logical_date.as_micros());
        world.run("enqueue", values).unwrap();
    }
    let lease = world.admit(NOW)[0].lease_ref();
    let before = world.state(&[key("t0"), key("t1")]);
    for at in [i64::MIN, i64::MAX] {
        assert!(world.start(lease, at).is_err());
        assert!(world.finish(lease, at, "success", None, None).is_err());
        assert!(world.finish(lease, NOW, "failed", None, Some(at)).is_err());
    }
    assert_eq!(world.state(&[key("t0"), key("t1")]), before);
}

/// One that could not be read would fail every tick of every admitter.
#[test]
fn a_retry_policy_is_taken_if_the_crate_can_read_it() {
    use stationmaster::backoff::{AirflowVersion, Jitter};
    let world = World::new();
    let take = |at: usize, json: &str| {
        let mut values = good();
        values[4] = Value::Text(format!("t{at}"));
        values[13] = Value::Text(json.into());
        world.run("enqueue", values)
    };
    let second = Duration::from_secs(1);
    let built = [
        RetryPolicy::fixed(Duration::ZERO).build(),
        RetryPolicy::fixed(Duration::MAX).max_attempts(u32::MAX).budget(second).build(),
        RetryPolicy::exponential(Duration::from_micros(1))
            .multiplier(f64::MAX)
            .jitter(Jitter::Decorrelated)
            .build(),
        RetryPolicy::exponential(second)
            .cap(Duration::from_micros(1))
            .max_delay(second)
            .jitter(Jitter::None)
            .build(),
        RetryPolicy::airflow(AirflowVersion::V2_5, second).build(),
        RetryPolicy::airflow(AirflowVersion::V3_2, second).multiplier(1.5).max_attempts(4).build(),
    ];
    for (at, policy) in built.into_iter().enumerate() {
        let json = serde_json::to_string(&policy.unwrap()).unwrap();
        take(at, &json).unwrap_or_else(|error| panic!("{json}: {error}"));
    }
    let refused = [
        "null",
        "3",
        "{}",
        r#"{"retries": 3}"#,
        r#"{"delay_s": "1"}"#,
        r#"{"delay_s": -1}"#,
        r#"{"delay_s": 1e999}"#,
        r#"{"delay_s": 1, "delay_s": 1}"#,
        r#"{"delay_s": 1, "retries": 3}"#,
        r#"{"delay_s": 1, "max_attempts": 0}"#,
        r#"{"delay_s": 1, "max_attempts": 1.5}"#,
        r#"{"delay_s": 1, "max_attempts": 4294967296}"#,
        r#"{"delay_s": 1, "multiplier": 0.5}"#,
        r#"{"delay_s": 1, "cap_s": 0}"#,
        r#"{"delay_s": 1, "max_delay_s": 0}"#,
        r#"{"delay_s": 1, "budget_s": [1]}"#,
        r#"{"delay_s": 1, "jitter": "some"}"#,
        r#"{"delay_s": 1, "jitter": "decorrelated"}"#,
        r#"{"delay_s": 1, "airflow": "1.10"}"#,
        r#"{"delay_s": 1, "airflow": "3.2", "jitter": "full"}"#,
        r#"{"delay_s": 1, "airflow": "2.6", "multiplier": 3}"#,
    ];
    for json in refused {
        assert!(serde_json::from_str::<RetryPolicy>(json).is_err(), "{json}");
        assert!(take(99, json).is_err(), "{json}");
    }
    assert_eq!(world.admit(NOW).len(), 3, "as many as the pool has slots");
}

#[test]
fn recorded_attempts_are_refused() {
    let world = World::new();
    let task = NewTask::new(key("t")).record_attempts(true);
    world.store.write(|tx| tx.enqueue(now(), std::slice::from_ref(&task))).unwrap();
    let lease = world.admit(NOW)[0].lease_ref();
    let before = world.state(&[key("t")]);
    for refused in [world.start(lease, NOW), world.finish(lease, NOW, "success", None, None)] {
        assert!(refused.unwrap_err().to_string().contains("recorded as runs"));
    }
    assert_eq!(world.state(&[key("t")]), before);
}

#[test]
fn every_column_that_is_promised_is_there_and_no_statement_reads_all_tasks() {
    let world = World::new();
    world.run("enqueue", good()).unwrap();
    let promised = "id, epoch, namespace, workflow, run, task, map_index, state, pool, slots, limits, priority, \
        logical_date, due, attempt, forgiven, holder, expires_at, enqueued_at, queued_at, first_started_at, started_at, \
        ended_at, retry, message, value, payload";
    let text = include_str!("../docs/sql.md");
    for column in promised.split(", ") {
        assert!(text.contains(&format!("`{column}`")), "{column}");
    }
    let row =
        world.host.query_row(&format!("SELECT {promised} FROM sm_status"), [], |row| row.get::<_, i64>("id"));
    assert_eq!(row.unwrap(), 1);
}

#[test]
fn a_statement_costs_the_same_however_many_tasks_there_are() {
    let world = World::new();
    let steps = |name: &str, values: &[Value]| {
        let mut statement = world.host.prepare(statement(name)).unwrap();
        let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        statement.get_status(rusqlite::StatementStatus::VmStep)
    };
    let text = |text: String| Value::Text(text);
    let round = |n: i64| {
        let mut task = good();
        task[4] = text(format!("t{n}"));
        let enqueued = steps("enqueue", &task);
        let status = [
            text("prod".into()),
            text("nightly".into()),
            text("r1".into()),
            text(format!("t{n}")),
            Value::Null,
        ];
        let status = steps("status", &status);
        let lease = world.admit(NOW + n)[0].lease_ref();
        let [id, epoch] = [lease.id.0, lease.epoch].map(Value::Integer);
        let by_id = steps("status_by_id", std::slice::from_ref(&id));
        let started = steps("start", &[Value::Integer(NOW), id.clone(), epoch.clone()]);
        let null = Value::Null;
        let end =
            [Value::Integer(NOW), id, epoch, text("given_back".into()), null.clone(), null.clone(), null];
        [enqueued, status, by_id, started, steps("finish", &end)]
    };
    round(0);
    let few = round(1);
    let more: Vec<NewTask> =
        (0..2_000).map(|n| NewTask::new(key(&format!("more {n}"))).pool("db".try_into().unwrap())).collect();
    world.store.write(|tx| tx.enqueue(now(), &more)).unwrap();
    world.admit(NOW);
    let many = round(2);
    for (few, many) in few.into_iter().zip(many) {
        assert!(few > 0 && many < few + 50, "{few} steps became {many}");
    }
}

#[test]
fn other_prefixes_have_a_contract_of_their_own() {
    let host = Connection::open_in_memory().unwrap();
    let prefix = stationmaster::store::sqlite::Prefix::new("jobs_").unwrap();
    migrate(&host, &prefix).unwrap();
    host.execute(&statement("enqueue").replace("sm_", "jobs_"), rusqlite::params_from_iter(good())).unwrap();
    let states: i64 = host.query_row("SELECT count(*) FROM jobs_status", [], |row| row.get(0)).unwrap();
    assert_eq!(states, 1);
}

#[test]
fn the_document_has_these_statements() {
    let names: Vec<&str> = statements().iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        ["enqueue", "status", "status_by_id", "start", "finish"],
        "each is run by a test above"
    );
}
