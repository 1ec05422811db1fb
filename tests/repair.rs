//! Counters that somebody made wrong are set to what they count, on every store whose rows somebody can reach. What
//! hosts see is then what it was before, and the work goes on. The memory store has a test of its own.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "postgres_server/mod.rs"]
mod postgres_server;
#[cfg(feature = "postgres")]
#[path = "scratch/mod.rs"]
mod scratch;

use std::sync::Arc;
use std::time::Duration;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{IfExists, QueueRecord};
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolRecord, PoolSpec, Slots};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::{Discrepancy, SqliteStore, Store};
use stationmaster::{NewTask, TaskKey, TaskRecord, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "later"];

/// Tasks of two pools and two limits: leased, ready, waiting for an instant, and ended.
fn work(store: &Arc<dyn Store>) {
    let tasks = NAMES.map(|name| {
        let task = NewTask::new(key(name)).pool_slots(1 + u32::from(name == "a"));
        let task = task.pool(if name < "e" { "db" } else { "default_pool" }.try_into().unwrap());
        let task = if name < "g" { task.limit("tenant".try_into().unwrap()) } else { task };
        let task = if name == "f" { task.limit("free".try_into().unwrap()) } else { task };
        let task = match name {
            "b" => {
                task.also("default_pool".try_into().unwrap(), 2).limit_count("free".try_into().unwrap(), 3)
            }
            _ => task,
        };
        if name == "later" { task.not_before(at(900)) } else { task }
    });
    store
        .write(|tx| {
            tx.define([PoolSpec::new("db", Slots::Limited(8)).unwrap()], IfExists::Replace)?;
            tx.define([LimitSpec::new("tenant".try_into()?, 4)?], IfExists::Replace)?;
            tx.enqueue(at(0), &tasks)
        })
        .unwrap();
    let mut admitter = Admitter::new(store.clone(), "me".try_into().unwrap()).lease(Duration::from_secs(600));
    let granted = admitter.tick(at(1)).unwrap().granted;
    let leases: Vec<_> = granted.iter().map(TaskRecord::lease_ref).collect();
    store.write(|tx| tx.start(at(2), &leases)).unwrap();
    store
        .write(|tx| tx.finish(at(3), &[Finish::success(leases[0]), Finish::failed(leases[1], "no")]))
        .unwrap();
}

/// What a host sees of the counters.
type Seen = (Vec<PoolRecord>, Vec<i64>, Vec<QueueRecord>, Vec<Option<TaskRecord>>);

fn seen(store: &Arc<dyn Store>) -> Seen {
    store
        .read(|tx| {
            let keys = ["tenant".try_into()?, "free".try_into()?];
            let used =
                tx.limits(&keys)?.into_iter().map(|limit| limit.map_or(-1, |limit| limit.used)).collect();
            Ok((tx.all_pools()?, used, tx.queues()?, tx.tasks(&NAMES.map(key))?))
        })
        .unwrap()
}

/// Makes counters wrong in each of these ways, and all at once, and has each repaired.
fn repairs(make: &dyn Fn() -> Arc<dyn Store>, spoil: &dyn Fn(&str), ways: &[(&str, &str)]) {
    let all = ways.iter().map(|(_, sql)| *sql).collect::<Vec<_>>().join(";");
    for (kind, sql) in ways.iter().copied().chain([("", all.as_str())]) {
        let store = make();
        work(&store);
        // What was changed is folded, so that a counter is not made wrong that has no row yet.
        store.write(|tx| tx.repair_counters()).unwrap();
        Admitter::new(store.clone(), "folds".try_into().unwrap()).admit(at(4), 0).unwrap();
        let before = seen(&store);
        assert_eq!(store.write(|tx| tx.repair_counters()).unwrap(), [], "a sound store is left alone");
        spoil(sql);
        let found = store.read(|tx| tx.audit()).unwrap();
        assert!(!found.is_empty(), "{sql}");
        assert!(found.iter().all(|found| format!("{found:?}").starts_with(kind)), "{sql}: {found:?}");
        let repaired = store.write(|tx| tx.repair_counters()).unwrap();
        assert_eq!(repaired, found, "{sql}");
        assert_eq!((store.read(|tx| tx.audit()).unwrap(), seen(&store)), (vec![], before), "{sql}");
        goes_on(&store);
    }
}

/// What is left is admitted and ends, and nothing is held afterwards.
fn goes_on(store: &Arc<dyn Store>) {
    let mut admitter = Admitter::new(store.clone(), "next".try_into().unwrap());
    let held = store.read(|tx| tx.leases_of(&"me".try_into()?, None, 99)).unwrap();
    let mut leases: Vec<_> = held.iter().map(TaskRecord::lease_ref).collect();
    for now in 1_000..1_010 {
        let ends: Vec<Finish> = leases.drain(..).map(Finish::success).collect();
        store.write(|tx| tx.finish(at(now), &ends)).unwrap();
        leases = admitter.tick(at(now)).unwrap().granted.iter().map(TaskRecord::lease_ref).collect();
    }
    let (pools, limits, queues, tasks) = seen(store);
    assert!(tasks.iter().flatten().all(|task| task.state.is_end()), "{tasks:?}");
    assert!(pools.iter().all(|pool| pool.used == 0) && limits == [0, -1], "{pools:?} {limits:?}");
    assert!(queues.iter().all(|queue| (queue.waiting, queue.leased) == (0, 0)), "{queues:?}");
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// What no store can know is reported, also beside a counter that is repaired.
fn leaves_tasks_alone(store: &Arc<dyn Store>, spoil: &dyn Fn()) {
    work(store);
    spoil();
    let hour = Duration::from_secs(3_600);
    let mut upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO).audit_every(hour).repairs(true);
    assert_eq!(upkeep.tick(at(4)).unwrap().audited, None, "the first is due in an hour");
    let report = upkeep.tick(at(3_604)).unwrap();
    let is_task = |found: &&Discrepancy| matches!(found, Discrepancy::Task { .. });
    let audited = report.audited.as_ref().unwrap();
    assert!(audited.iter().any(|found| is_task(&found)), "{audited:?}");
    assert!(report.repaired.iter().all(|found| !is_task(&found)) && report.errors.is_empty(), "{report:?}");
    assert!(store.read(|tx| tx.audit()).unwrap().iter().any(|found| is_task(&found)));
}

#[test]
fn counters_are_repaired_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let (path, count) = (dir.path().join("jobs.db"), std::cell::Cell::new(0));
    let file = || path.with_extension(format!("{}", count.get()));
    repairs(
        &|| {
            count.set(count.get() + 1);
            Arc::new(SqliteStore::open(file(), Default::default()).unwrap())
        },
        &|sql| rusqlite::Connection::open(file()).unwrap().execute_batch(sql).unwrap(),
        &[
            ("Pool", "UPDATE sm_pool SET used = used + 3 WHERE name = 'db'"),
            ("Pool", "UPDATE sm_pool SET used = -7 WHERE name = 'default_pool'"),
            ("Limit {", "UPDATE sm_task_limit SET used = 0 WHERE key = 'tenant'"),
            ("LimitLanes", "UPDATE sm_task_limit SET lanes = lanes + 2"),
            ("Lane {", "UPDATE sm_lane SET ready = ready + 1"),
            ("LaneTasks", "UPDATE sm_lane SET tasks = tasks + 5 WHERE tasks > 0"),
            ("LaneTasks", "UPDATE sm_lane SET ended = ended + 5"),
            ("", "DELETE FROM sm_task_limit WHERE key = 'free'"),
        ],
    );
}

#[test]
fn a_broken_task_is_not_repaired_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    leaves_tasks_alone(&store, &|| {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("UPDATE sm_task SET due = 5 WHERE state = 0").unwrap();
    });
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::postgres_server::Plain;
    use super::scratch::{Scratch, url};
    use super::*;

    #[test]
    fn counters_are_repaired() {
        let (scratch, plain) = (Scratch::new(), Plain::connect(&url()));
        repairs(
            &|| {
                let store = scratch.open(|options| options);
                scratch.empty();
                Arc::new(store)
            },
            &|sql| drop(plain.ask(&sql.replace("sm.", &format!("\"{}\".", scratch.0)))),
            &[
                ("Pool", "UPDATE sm.pool_use SET used = used + 3 WHERE name = 'db'"),
                ("Pool", "DELETE FROM sm.pool_use WHERE name = 'default_pool'"),
                (
                    "Pool",
                    "INSERT INTO sm.pool_use (name, version, used) SELECT name, 0, 2 FROM sm.pool WHERE name = 'db'",
                ),
                ("Limit {", "UPDATE sm.limit_use SET used = 0 WHERE key = 'tenant'"),
                ("LimitLanes", "UPDATE sm.limit_use SET lanes = lanes + 2"),
                ("", "DELETE FROM sm.limit_use WHERE key = 'free'"),
                ("Lane {", "UPDATE sm.lane_use SET ready = ready + 1"),
                ("LaneTasks", "UPDATE sm.lane_use SET tasks = tasks - 1"),
            ],
        );
    }

    /// A host's transaction has changed rows and counters, and is open while a counter is repaired: before a fold, so
    /// that the repair has to count what was appended, and what is appended and not committed.
    #[test]
    fn a_repair_and_an_open_transaction_do_not_touch_each_other() {
        let (scratch, plain) = (Scratch::new(), Plain::connect(&url()));
        let store: Arc<dyn Store> = Arc::new(scratch.open(|options| options));
        work(&store);
        let schema = &scratch.0;
        plain.ask(&format!(
            "UPDATE \"{schema}\".pool_use SET used = used + 3; UPDATE \"{schema}\".limit_use SET used = used - 1"
        ));
        plain.ask(&format!("UPDATE \"{schema}\".lane_use SET ready = ready + 1, tasks = tasks + 2"));
        let found = store.read(|tx| tx.audit()).unwrap();
        let mine = store.read(|tx| tx.leases_of(&"me".try_into()?, None, 9)).unwrap();
        let (finished, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let host = scratch.open(|options| options);
                let more = NewTask::new(key("more")).limit("new".try_into().unwrap());
                host.write(|tx| {
                    tx.finish(at(5), &[Finish::success(mine[0].lease_ref())])?;
                    tx.enqueue(at(5), std::slice::from_ref(&more))?;
                    finished.wait();
                    go_on.wait();
                    Ok(())
                })
                .unwrap();
            });
            finished.wait();
            assert_eq!(store.write(|tx| tx.repair_counters()).unwrap(), found);
            assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
            go_on.wait();
        });
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
        goes_on(&store);
    }

    #[test]
    fn a_broken_task_is_not_repaired() {
        let (scratch, plain) = (Scratch::new(), Plain::connect(&url()));
        let store: Arc<dyn Store> = Arc::new(scratch.open(|options| options));
        leaves_tasks_alone(&store, &|| {
            plain.ask(&format!("DELETE FROM \"{}\".ready", scratch.0));
        });
    }
}
