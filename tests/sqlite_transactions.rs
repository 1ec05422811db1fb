//! Transactions of the SQLite store: its own, its neighbours', and those that the host owns.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::error::StoreErrorKind;
use stationmaster::id::{Holder, LimitKey, PoolName};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::Durability;
use stationmaster::store::contract::{GrantBatch, Move};
use stationmaster::store::sqlite::rusqlite::{Connection, TransactionBehavior};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, SqliteTx, migrate, migrations_sql};
use stationmaster::store::{Discrepancy, Inserted, SqliteStore, Store, TxMode};
use stationmaster::testing::RawStoreExt;
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, TaskId, TaskKey, TaskState, Timestamp};

fn kind(error: Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("{other}"),
    }
}

fn fast(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::new().durability(Durability::Process)).unwrap()
}

fn pool(name: &str, slots: u32) -> PoolSpec {
    PoolSpec::new(name, Slots::Limited(slots)).unwrap()
}

fn used(store: &SqliteStore, name: &str) -> i64 {
    let names = [PoolName::new(name).unwrap()];
    store.read(|tx| tx.pools(&names)).unwrap()[0].as_ref().map_or(-1, |pool| pool.used)
}

#[test]
fn a_reading_transaction_refuses_to_write() {
    let dir = tempfile::tempdir().unwrap();
    for store in [fast(&dir.path().join("jobs.db")), SqliteStore::in_memory(SqliteOptions::new()).unwrap()] {
        let refused = store.read_raw(|raw| Ok(raw.put_pools(&[pool("p", 1)])?)).unwrap_err();
        assert_eq!(kind(refused), StoreErrorKind::ReadOnly);
        assert_eq!(store.read(|tx| tx.all_pools()).unwrap().len(), 1);
    }
}

#[test]
fn handles_that_contend_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let (handles, rounds) = (4, 100);
    let tasks: Vec<NewTask> = (0..handles * rounds)
        .map(|n| {
            NewTask::new(TaskKey::new("n", "w", "r", format!("t{n}")).unwrap()).pool("p".try_into().unwrap())
        })
        .collect();
    let stores: Vec<SqliteStore> = (0..handles).map(|_| fast(&path)).collect();
    stores[0].write(|tx| tx.define([pool("p", 1_000_000)], IfExists::Replace)).unwrap();
    stores[0].write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
    let holder = Holder::new("h").unwrap();
    std::thread::scope(|scope| {
        for (handle, store) in stores.iter().enumerate() {
            let holder = &holder;
            scope.spawn(move || {
                for round in 0..rounds {
                    let id = [TaskId(handle as i64 * rounds + round + 1)];
                    let batch = GrantBatch::new(&id, holder, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
                    // Reads before it writes: begun deferred, this would be refused as busy.
                    store
                        .write(|tx| {
                            tx.all_pools()?;
                            Ok(raw(tx).grant_if_open(&batch)?)
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(used(&stores[0], "p"), handles * rounds);
}

#[test]
fn a_long_read_stops_no_writer_and_sees_one_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = fast(&dir.path().join("jobs.db"));
    let (written, wait) = mpsc::channel();
    let (began, start) = mpsc::channel();
    let read = &store;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            read.read(|tx| {
                let before = tx.all_pools()?.len();
                began.send(()).unwrap();
                wait.recv_timeout(Duration::from_secs(20)).expect("the writer went on");
                Ok((before, tx.all_pools()?.len()))
            })
        });
        start.recv().unwrap();
        store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).unwrap();
        written.send(()).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), (1, 1));
    });
    assert_eq!(store.read(|tx| tx.all_pools()).unwrap().len(), 2);
}

#[test]
fn busy_is_reported_in_time_and_the_next_call_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let options = SqliteOptions::new().busy_timeout(Duration::from_millis(200));
    let store = SqliteStore::open(&path, options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let refused = store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).unwrap_err();
    assert!(refused.is_retryable() && began.elapsed() < Duration::from_secs(2));
    assert_eq!(kind(refused), StoreErrorKind::Busy);
    other.execute_batch("ROLLBACK").unwrap();
    store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).unwrap();
}

#[test]
fn a_panic_rolls_back_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    for store in [fast(&dir.path().join("jobs.db")), SqliteStore::in_memory(SqliteOptions::new()).unwrap()] {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            store.write(|tx| -> Result<(), Error> {
                tx.define([pool("p", 1)], IfExists::Replace)?;
                panic!("the body's own")
            })
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"the body's own"));
        assert_eq!(used(&store, "p"), -1);
        store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).unwrap();
    }
}

#[test]
fn host_rows_and_ours_commit_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let prefix = Prefix::new("wf_").unwrap();
    let mut conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE app (x)").unwrap();
    migrate(&conn, &prefix).unwrap();
    let task = NewTask::new(TaskKey::new("n", "w", "r", "t").unwrap()).check(Timestamp::UNIX_EPOCH).unwrap();

    for commit in [false, true] {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("INSERT INTO app VALUES (1)", []).unwrap();
        let mut ours = SqliteTx::attach(&tx, &prefix).unwrap();
        raw(&mut ours).insert_tasks_if_absent(std::slice::from_ref(&task)).unwrap();
        assert!(ours.audit().unwrap().is_empty());
        if commit {
            tx.commit().unwrap()
        } else {
            tx.rollback().unwrap()
        }
        let rows = "SELECT (SELECT count(*) FROM app), (SELECT count(*) FROM wf_task)";
        let rows: (i64, i64) = conn.query_row(rows, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(rows, (i64::from(commit), i64::from(commit)));
    }
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "no pragma of the host's was touched");
}

#[test]
fn a_host_can_own_the_migration_too() {
    let prefix = Prefix::default();
    let mut conn = Connection::open_in_memory().unwrap();
    let tx = conn.transaction().unwrap();
    tx.execute_batch(&migrations_sql(&prefix)).unwrap();
    migrate(&tx, &prefix).unwrap();
    assert_eq!(SqliteTx::attach(&tx, &prefix).unwrap().all_pools().unwrap().len(), 1);
    tx.commit().unwrap();

    let mut conn = Connection::open_in_memory().unwrap();
    let tx = conn.transaction().unwrap();
    migrate(&tx, &prefix).unwrap();
    tx.rollback().unwrap();
    assert!(!conn.table_exists(None, "sm_task").unwrap(), "it took part in the host's transaction");
}

#[test]
fn attaching_needs_a_transaction_and_tables() {
    let mut conn = Connection::open_in_memory().unwrap();
    let prefix = Prefix::default();
    assert_eq!(SqliteTx::attach(&conn, &prefix).unwrap_err().kind(), StoreErrorKind::Backend);
    let tx = conn.transaction().unwrap();
    let refused = SqliteTx::attach(&tx, &prefix).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Schema);
    assert!(refused.to_string().contains("create them with `sqlite::migrate`"), "{refused}");
}

/// As a host does that gives every run a limit of its own.
#[test]
fn runs_that_are_forgotten_leave_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = fast(&path);
    for run in 0..20 {
        let task = NewTask::new(TaskKey::new("n", "w", format!("r{run}"), "t").unwrap())
            .limit(LimitKey::new(format!("run/{run}")).unwrap())
            .limit(LimitKey::new("all").unwrap());
        let insert = task.check(Timestamp::from_micros(run)).unwrap();
        store
            .write(|tx| {
                let answers = raw(tx).insert_tasks_if_absent(std::slice::from_ref(&insert))?;
                let Inserted::New(id) = answers[0] else { panic!("{answers:?}") };
                let mut end = Move::new(LeaseRef::new(id, 0), TaskState::Scheduled, TaskState::Success);
                end.ended_at = Some(Timestamp::from_micros(run));
                Ok(raw(tx).move_if(&[end])?)
            })
            .unwrap();
    }
    let db = Connection::open(&path).unwrap();
    let rows = |table: &str| -> i64 {
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    // The lanes' rows say what the ended tasks needed. No task that has not ended carries a key.
    assert_eq!((rows("sm_task"), rows("sm_lane"), rows("sm_task_limit")), (20, 20, 0));
    assert_eq!(
        store
            .write(|tx| Ok(raw(tx).forget_ended(
                TaskState::Success,
                Timestamp::from_micros(15),
                Timestamp::from_micros(15),
                99
            )?))
            .unwrap(),
        15
    );
    assert_eq!((rows("sm_task"), rows("sm_lane"), rows("sm_task_limit")), (5, 5, 0));
    assert_eq!(
        store
            .write(|tx| Ok(raw(tx).forget_ended(
                TaskState::Success,
                Timestamp::from_micros(99),
                Timestamp::from_micros(99),
                99
            )?))
            .unwrap(),
        5
    );
    assert_eq!((rows("sm_task"), rows("sm_lane"), rows("sm_task_limit")), (0, 0, 0));
}

#[test]
fn the_audit_compares_what_decides_whether_a_row_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = fast(&path);
    let key = LimitKey::new("k").unwrap();
    let task = NewTask::new(TaskKey::new("n", "w", "r", "t").unwrap()).limit(key.clone());
    let insert = task.check(Timestamp::UNIX_EPOCH).unwrap();
    store.write(|tx| Ok(raw(tx).insert_tasks_if_absent(std::slice::from_ref(&insert))?)).unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE sm_lane SET tasks = 4, ended = 7; UPDATE sm_task_limit SET lanes = 5").unwrap();
    let expected = [
        Discrepancy::LimitLanes { key, counted: 5, held: 1 },
        Discrepancy::LaneTasks { lane: (*insert.lane).clone(), counted: 4, held: 1 },
        Discrepancy::LaneTasks { lane: (*insert.lane).clone(), counted: 7, held: 0 },
    ];
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), expected);
}

#[test]
fn the_audit_compares_slots_leases_and_ready_tasks_with_their_counters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = fast(&path);
    let key = LimitKey::new("k").unwrap();
    let task = |name: &str| {
        NewTask::new(TaskKey::new("n", "w", "r", name).unwrap()).pool_slots(3).limit(key.clone())
    };
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("granted"), task("ready")])).unwrap();
    let holder = Holder::new("h").unwrap();
    let ids = [TaskId(1)];
    let batch = GrantBatch::new(&ids, &holder, Timestamp::from_micros(1), Timestamp::from_micros(2));
    assert!(store.write(|tx| Ok(raw(tx).grant_if_open(&batch)?.is_whole(&batch))).unwrap());
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "UPDATE sm_pool SET used = 4; UPDATE sm_task_limit SET used = 5; UPDATE sm_lane SET ready = 6",
    )
    .unwrap();
    let found = store.read(|tx| tx.audit()).unwrap();
    let lane = store.read(|tx| Ok(raw(tx).tasks_by_id(&ids)?.remove(0).unwrap().lane)).unwrap();
    let expected = [
        Discrepancy::Pool { pool: lane.pool.clone(), counted: 4, held: 3 },
        Discrepancy::Limit { key, counted: 5, held: 1 },
        Discrepancy::Lane { lane: (*lane).clone(), counted: 6, held: 1 },
    ];
    assert!(found.len() == 3 && expected.iter().all(|one| found.contains(one)), "{found:?}");
}

#[test]
fn a_transaction_inside_another_is_refused_at_once_if_it_needs_the_same_connection() {
    let dir = tempfile::tempdir().unwrap();
    let file = fast(&dir.path().join("jobs.db"));
    let memory = SqliteStore::in_memory(SqliteOptions::new()).unwrap();
    let modes = [TxMode::Read, TxMode::Write];
    for (store, is_file) in [(&file, true), (&memory, false)] {
        for (outer, inner) in modes.into_iter().flat_map(|outer| modes.map(|inner| (outer, inner))) {
            let began = Instant::now();
            let mut nested = Ok(());
            let answer = store.transact(outer, &mut |tx| {
                nested = store.transact(inner, &mut |tx| Ok(raw(tx).next_expiry().map(drop)?));
                tx.all_pools().map(drop)
            });
            assert!(answer.is_ok(), "the outer one goes on");
            assert!(began.elapsed() < Duration::from_secs(1));
            match nested {
                Ok(()) => assert!(is_file && outer != inner, "{inner:?} inside {outer:?}"),
                Err(error) => {
                    assert!(!is_file || outer == inner, "{inner:?} inside {outer:?}: {error}");
                    assert!(error.to_string().contains("open on this thread"), "{error}");
                    assert_eq!(kind(error), StoreErrorKind::Backend);
                }
            }
        }
        assert!(
            store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).is_ok(),
            "and the store goes on"
        );
    }
}
