//! The statements of `docs/sql.md` do what the crate does, and nothing that the crate does not find: on SQLite and
//! on PostgreSQL, each with its feature.
#![cfg(all(feature = "testing", any(feature = "sqlite", feature = "postgres")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arguments;
mod cancel;
mod caps;
#[path = "../hosts/contract.rs"]
mod contract;
mod leases;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../postgres_server/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod postgres_server;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(feature = "sqlite")]
mod sqlite;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use contract::statements;
use stationmaster::admission::{Ageing, IfExists};
use stationmaster::backoff::{Decision, History, RetryKey, RetryPolicy, decide};
use stationmaster::id::PoolName;
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::task::{KeptAttempts, LeaseLoss};
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};
use world::{NOW, Value, World, databases, good, key, now, values};

fn retry() -> RetryPolicy {
    RetryPolicy::exponential(Duration::from_secs(3)).max_attempts(3).build().unwrap()
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
        limit(new("rendered").queue("gpu".try_into().unwrap()), &["a", "b"]),
        new("of the default queue").queue("default".try_into().unwrap()),
        new("substitutes").payload("\u{1a}0 and \u{1a}"),
        new("plain").priority(9),
        limit(new("plain"), &["never seen"]),
    ]
}

#[test]
fn what_sql_enqueues_starts_and_finishes_is_what_the_crate_does() {
    for make in databases() {
        let (ours, sql) = (make(), make());
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
                        (name, text) = ("success", Some("7 rows\u{1a}1".to_owned()));
                        Finish::success_with(lease, "7 rows\u{1a}1")
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
        let all = [
            ("failed", false),
            ("failed", true),
            ("given_back", false),
            ("skipped", false),
            ("success", false),
        ];
        assert_eq!(seen, all.into());
    }
}

#[test]
fn sql_keeps_the_attempts_that_the_task_says() {
    let choices = [KeptAttempts::None, KeptAttempts::Failures, KeptAttempts::All];
    let outcomes = ["success", "skipped", "failed", "given_back"];
    for make in databases() {
        let (ours, sql) = (make(), make());
        let names: Vec<String> = (0..choices.len() * outcomes.len()).map(|n| format!("t{n:02}")).collect();
        let task = |(n, name): (usize, &String)| {
            NewTask::new(key(name)).pool("db".try_into().unwrap()).keep_attempts(choices[n / outcomes.len()])
        };
        let tasks: Vec<NewTask> = names.iter().enumerate().map(task).collect();
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
        for world in [&ours, &sql] {
            world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
        }
        let granted = ours.admit(NOW + 1);
        assert_eq!(sql.admit(NOW + 1), granted);
        for task in &granted {
            let lease = task.lease_ref();
            let outcome =
                outcomes[names.iter().position(|name| *name == task.key.task.as_str()).unwrap() % 4];
            let end = match outcome {
                "success" => Finish::success(lease),
                "skipped" => Finish::skipped(lease, "not needed"),
                "failed" => Finish::failed(lease, "no route"),
                _ => Finish::given_back(lease),
            };
            ours.store
                .write(|tx| tx.finish(Timestamp::from_micros(NOW + 2), std::slice::from_ref(&end)))
                .unwrap();
            let text = match outcome {
                "skipped" => Some("not needed".to_owned()),
                "failed" => Some(decided(&sql, lease, &task.key, NOW + 2).0),
                _ => None,
            };
            sql.finish(lease, NOW + 2, outcome, text.as_deref(), None).unwrap();
        }
        let kept = |world: &World| world.store.read(|tx| tx.attempts(&keys)).unwrap();
        assert_eq!(kept(&sql), kept(&ours));
        let counts: Vec<usize> = kept(&ours).iter().map(Vec::len).collect();
        assert_eq!(counts, [[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]].concat());
        assert_eq!(sql.state(&keys), ours.state(&keys));
    }
}

/// What the documentation tells a host to do with a failed attempt.
fn decided(world: &World, lease: LeaseRef, key: &TaskKey, at: i64) -> (String, Option<i64>) {
    let found = world.ask("status_by_id", &values![lease.id.0]).unwrap().remove(0);
    let [id, _, _, attempt, forgiven, policy, started, queued, date] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(id.int(), lease.id.0);
    let policy = match policy {
        Value::Null => RetryPolicy::none(),
        json => serde_json::from_str(json.text()).unwrap(),
    };
    let first = if *started == Value::Null { queued } else { started };
    let (first, at) = (Timestamp::from_micros(first.int()), Timestamp::from_micros(at));
    let history = History::new(u32::try_from(attempt.int() - forgiven.int()).unwrap(), first, at);
    let key = RetryKey::new(key).logical_date(Timestamp::from_micros(date.int()));
    match decide(&policy, &key, &history) {
        Decision::RetryAt(at) => ("no route".into(), Some(at.as_micros())),
        Decision::GiveUp(why) => (format!("no route ({why})"), None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rank_that_ages_is_the_hosts_to_give() {
    for make in databases() {
        let (ours, sql) = (make(), make());
        let ageing = Ageing::Linear { period: Duration::from_secs(60) };
        let task = NewTask::new(key("t")).priority(3).not_before(Timestamp::from_micros(NOW + 9));
        ours.store.write(|tx| tx.enqueue_ageing(now(), ageing, std::slice::from_ref(&task))).unwrap();
        sql.enqueue(&task, Some(ageing.rank(3, Timestamp::from_micros(NOW + 9))));
        assert_eq!(sql.state(&[key("t")]), ours.state(&[key("t")]));
    }
}

#[test]
fn what_was_rolled_back_never_was() {
    for make in databases() {
        let world = make();
        let before = world.state(&[key("t")]);
        let status = values!["prod", "nightly", "r1", "t", None::<i64>];
        let state = || Some(world.ask("status", &status).unwrap().pop()?.swap_remove(2));
        world.host.batch(world.host.begin());
        world.host.batch("SAVEPOINT here");
        world.ask("enqueue", &good()).unwrap();
        assert_eq!(state(), Some(Value::from("scheduled")), "seen at once");
        world.host.batch("ROLLBACK TO SAVEPOINT here");
        assert_eq!(state(), None);
        world.ask("enqueue", &good()).unwrap();
        let id = world.ask("status", &status).unwrap()[0][0].int();
        world.host.batch("SAVEPOINT here");
        world.ask("cancel", &values![NOW, id, "skipped", "no"]).unwrap();
        assert_eq!(state(), Some(Value::from("skipped")));
        world.host.batch("ROLLBACK TO SAVEPOINT here");
        assert_eq!(state(), Some(Value::from("scheduled")));
        world.host.batch("ROLLBACK");
        assert_eq!(world.state(&[key("t")]), before);
    }
}

#[test]
fn every_column_that_is_promised_is_there() {
    let promised = "id, epoch, namespace, workflow, run, task, map_index, state, queue, pool, slots, limits, priority, \
        logical_date, due, attempt, forgiven, holder, expires_at, enqueued_at, queued_at, first_started_at, started_at, \
        ended_at, retry, message, value, payload, map_key";
    let text = include_str!("../../docs/sql.md");
    for column in promised.split(", ") {
        assert!(text.contains(&format!("`{column}`")), "{column}");
    }
    for make in databases() {
        let world = make();
        let mut mapped = good();
        mapped[5] = Value::Int(7);
        world.run("enqueue", &good()).unwrap();
        world.run("enqueue", &mapped).unwrap();
        let view = if world.is_sqlite() { "sm_status" } else { "stationmaster.status" };
        let rows = world.host.ask(&format!("SELECT {promised} FROM {view} ORDER BY id"), &[]).unwrap();
        let seen: Vec<[&Value; 3]> = rows.iter().map(|row| [&row[0], &row[6], &row[28]]).collect();
        assert_eq!(
            seen,
            [
                [&Value::Int(1), &Value::Null, &Value::Int(-1)],
                [&Value::Int(2), &Value::Int(7), &Value::Int(7)]
            ]
        );
        assert_eq!((&rows[1][8], &rows[1][11]), (&"default".into(), &r#"["a","b"]"#.into()));
    }
}

/// A lease as `status` shows it, beats included.
#[test]
fn status_shows_who_holds_a_task_and_until_when() {
    for make in databases() {
        let world = make();
        world.run("enqueue", &good()).unwrap();
        let lease = world.admit(NOW)[0].lease_ref();
        world.start(lease, NOW).unwrap();
        world.store.write(|tx| tx.renew(now(), Duration::from_secs(60), &[lease])).unwrap();
        let seen = world.ask("status", &values!["prod", "nightly", "r1", "t", None::<i64>]).unwrap();
        let expected =
            values![lease.id.0, lease.epoch, "running", 1, "h", NOW + 60_000_000, None::<i64>, None::<i64>];
        assert_eq!(seen, [expected]);
    }
}

/// Orders of a shop, each with a task, joined with what became of the tasks.
#[test]
fn a_host_joins_the_view_with_its_own_rows() {
    for make in databases() {
        let world = make();
        world.host.batch("CREATE TEMPORARY TABLE shop_order (number BIGINT, customer TEXT, task_id BIGINT)");
        let tasks = [
            NewTask::new(key("ends")).queue("gpu".try_into().unwrap()),
            NewTask::new(key("runs")).pool("wide".try_into().unwrap()),
            NewTask::new(key("waits")).not_before(Timestamp::from_micros(NOW + 90)),
            NewTask::new(key("of another")),
        ];
        let wide = PoolSpec::new(PoolName::new("wide").unwrap(), Slots::Unlimited).unwrap();
        world.store.write(|tx| tx.define(std::slice::from_ref(&wide), IfExists::Replace)).unwrap();
        for (number, task) in tasks.iter().enumerate() {
            world.enqueue(task, None);
            let (id, customer) = (world.id(&task.key), if number < 3 { "ann" } else { "bob" });
            world.host.batch(&format!("INSERT INTO shop_order VALUES ({number}, '{customer}', {id})"));
        }
        for granted in world.admit(NOW) {
            world.start(granted.lease_ref(), NOW + 1).unwrap();
            if granted.key.task.as_str() == "ends" {
                world.finish(granted.lease_ref(), NOW + 2, "success", None, None).unwrap();
            }
        }
        let none = None::<i64>;
        let expected = [
            values![0, "success", "gpu", "default_pool", none, none, NOW + 2],
            values![1, "running", "default", "wide", "h", none, none],
            values![2, "scheduled", "default", "default_pool", none, NOW + 90, none],
        ];
        assert_eq!(world.ask("orders", &values!["ann"]).unwrap(), expected);
        if world.is_sqlite() {
            let plan = format!("EXPLAIN QUERY PLAN {}", contract::statement("SQLite", "orders"));
            let steps = world.host.ask(&plan, &values!["ann"]).unwrap();
            let found = |step: &str| steps.iter().any(|row| row[3].text().contains(step));
            assert!(found("SEARCH t USING INTEGER PRIMARY KEY"), "{steps:?}");
        }
    }
}

#[test]
fn the_document_has_these_statements() {
    let names = |database| -> Vec<&str> { statements(database).into_iter().map(|(name, _)| name).collect() };
    let each =
        ["enqueue", "status", "status_by_id", "sharing", "orders", "start", "finish", "cancel", "cancel_by"];
    assert_eq!(names("SQLite"), each, "each is run by a test");
    let more = ["enqueue_many", "start_many", "finish_many", "wake"];
    let all: BTreeSet<&str> = each.into_iter().chain(more).collect();
    assert_eq!(BTreeSet::from_iter(names("PostgreSQL")), all, "each is run by a test");
}

/// What shares hold is given back by either, also of several pools, and the last slot is stamped.
#[test]
fn what_sql_finishes_is_no_longer_held_by_its_share() {
    for make in databases() {
        let (ours, sql) = (make(), make());
        let of = |name: &str, share: &str| {
            let task = NewTask::new(key(name)).pool("db".try_into().unwrap()).pool_slots(2);
            task.also("disk".try_into().unwrap(), 3).share(share.try_into().unwrap())
        };
        let tasks = [of("a1", "a"), of("a2", "a"), of("b1", "b"), of("c1", "c"), of("c2", "c")];
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
        let mut granted = Vec::new();
        for world in [&ours, &sql] {
            let pools = ["db", "disk"].map(|name| PoolSpec::new(name, Slots::Limited(12)).unwrap());
            world.store.write(|tx| tx.define(&pools, IfExists::Replace)).unwrap();
            world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
            granted = world.admit(NOW);
        }
        let names: Vec<&str> = granted.iter().map(|task| task.key.task.as_str()).collect();
        assert_eq!(names, ["a1", "b1", "c1", "a2"], "the disk is full");
        assert_eq!(sql.state(&keys), ours.state(&keys));
        for (at, (task, outcome)) in
            granted.iter().zip(["success", "skipped", "given_back", "success"]).enumerate()
        {
            let (lease, at) = (task.lease_ref(), NOW + 1 + at as i64);
            let end = match outcome {
                "success" => Finish::success(lease),
                "given_back" => Finish::given_back(lease),
                _ => Finish::skipped(lease, "no"),
            };
            ours.store.write(|tx| tx.finish(Timestamp::from_micros(at), std::slice::from_ref(&end))).unwrap();
            let text = (outcome == "skipped").then_some("no");
            sql.finish(lease, at, outcome, text, None).unwrap();
            assert_eq!(sql.state(&keys), ours.state(&keys), "{outcome}");
        }
        assert_eq!(sql.admit(NOW + 9), ours.admit(NOW + 9));
        assert_eq!(sql.state(&keys), ours.state(&keys));
    }
}

/// Sensors of one kind and one context share a target.
#[test]
fn sharing_shows_the_sensors_and_the_targets_of_each_kind() {
    use stationmaster::canonical::PokeContext;
    use stationmaster::sensor::{NewSensor, Settings};

    for make in databases() {
        let world = make();
        assert!(world.ask("sharing", &[]).unwrap().is_empty());
        let tasks =
            ["a", "b", "c", "d", "e"].map(|name| NewTask::new(key(name)).pool("db".try_into().unwrap()));
        world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
        let granted = world.admit(NOW);
        let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3_600)).unwrap();
        let waits = [("file", "x"), ("file", "x"), ("file", "y"), ("table", "x"), ("table", "gone")];
        let sensors: Vec<NewSensor> = granted
            .iter()
            .zip(waits)
            .map(|(task, (kind, path))| {
                let context = PokeContext::from_json(&format!(r#"{{"path":"{path}"}}"#)).unwrap();
                NewSensor::new(task.lease_ref(), kind.try_into().unwrap(), context, settings)
            })
            .collect();
        let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
        world.store.write(|tx| tx.start(now(), &leases)).unwrap();
        world.store.write(|tx| tx.register(now(), &sensors)).unwrap();
        world.store.write(|tx| tx.cancel(now(), Duration::ZERO, &[key("e")], "gone")).unwrap();
        let rows = world.ask("sharing", &[]).unwrap();
        let rows: Vec<_> =
            rows.iter().map(|row| (row[0].text().to_owned(), row[1].int(), row[2].int())).collect();
        assert_eq!(rows, [("file".to_owned(), 3, 2), ("table".to_owned(), 1, 1)]);
    }
}
