//! Transactions that the host owns: its rows and the store's become visible together or not at all, and its connection
//! stays its own.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::error::StoreErrorKind;
use stationmaster::ops::{AdmitRequest, Fenced, Finish};
use stationmaster::store::sqlite::rusqlite::types::Value;
use stationmaster::store::sqlite::rusqlite::{Connection, TransactionBehavior};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, SqliteTx, migrate};
use stationmaster::store::{SqliteStore, Tx};
use stationmaster::task::LeaseLoss;
use stationmaster::testing::life;
use stationmaster::{Error, LeaseRef, NewTask, TaskKey, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// A database of a host's, with a table of its own and ours.
fn database(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)").unwrap();
    migrate(&conn, &Prefix::default()).unwrap();
    conn
}

/// Every row of every table, the host's included.
fn all_rows(conn: &Connection) -> Vec<(String, Vec<Value>)> {
    let mut tables =
        conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut found = Vec::new();
    for table in tables {
        let mut rows = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            found.push((table.clone(), (0..width).map(|column| row.get(column).unwrap()).collect()));
        }
    }
    found
}

#[test]
fn every_operation_commits_with_the_hosts_rows_or_vanishes_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let mut conn = database(&path);
    let store = SqliteStore::open(&path, SqliteOptions::new()).unwrap();
    for (id, step) in life().into_iter().enumerate() {
        let before = all_rows(&conn);
        for commit in [false, true] {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            tx.execute("INSERT INTO orders VALUES (?1, ?2)", (id as i64, step.name)).unwrap();
            let mut ours = SqliteTx::attach(&tx, &Prefix::default()).unwrap();
            (step.run)(&mut ours).unwrap_or_else(|error| panic!("{}: {error}", step.name));
            assert_eq!(ours.audit().unwrap(), [], "{}", step.name);
            assert_ne!(all_rows(&tx), before, "{} writes", step.name);
            if commit {
                tx.commit().unwrap()
            } else {
                tx.rollback().unwrap()
            }
            if !commit {
                assert_eq!(all_rows(&conn), before, "{} was rolled back", step.name);
            }
        }
        let written = all_rows(&conn).iter().filter(|(table, _)| table.starts_with("sm_")).count();
        assert!(written > 0);
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), [], "{}: seen by the store's own handle", step.name);
    }
    let orders: i64 = conn.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, life().len() as i64);
}

fn order(tick: &str) -> AdmitRequest {
    AdmitRequest::new("w".try_into().unwrap(), tick.try_into().unwrap(), 9, Duration::from_secs(30))
}

#[test]
fn a_stale_lease_fails_the_hosts_function_and_its_rows_go_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut conn = database(&dir.path().join("shop.db"));
    let store = SqliteStore::open(conn.path().unwrap(), SqliteOptions::new()).unwrap();
    let two = ["a", "b"].map(|name| NewTask::new(key(name)).lease_loss(LeaseLoss::Requeue { at_most: 1 }));
    let leases = |granted: Vec<stationmaster::TaskRecord>| -> Vec<LeaseRef> {
        granted.iter().map(|task| task.lease_ref()).collect()
    };
    let stale = store
        .write(|tx| {
            tx.enqueue(at(0), &two)?;
            Ok(leases(tx.admit(at(0), &order("t1"))?.granted))
        })
        .unwrap();
    store
        .write(|tx| {
            tx.start(at(0), &stale)?;
            assert_eq!(tx.reap(at(60), 1)?.len(), 1, "the first of the two is lost");
            Ok(())
        })
        .unwrap();
    let before = all_rows(&conn);

    type Body = fn(&mut Tx<'_>, &[LeaseRef]) -> Result<(), Error>;
    let ship = |conn: &mut Connection, body: Body| -> Result<(), Error> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Error::abort)?;
        tx.execute("INSERT INTO orders VALUES (1, 'shipped')", []).map_err(Error::abort)?;
        body(&mut SqliteTx::attach(&tx, &Prefix::default())?, &stale)?;
        tx.commit().map_err(Error::abort)
    };
    let bodies: [Body; 4] = [
        |tx, leases| tx.start(at(61), leases)?.fenced().map(drop),
        |tx, leases| tx.renew(at(61), Duration::from_secs(9), leases)?.fenced().map(drop),
        |tx, leases| {
            let ends: Vec<_> = leases.iter().rev().map(|lease| Finish::success(*lease)).collect();
            tx.finish(at(61), &ends)?.fenced().map(drop)
        },
        |tx, leases| {
            use stationmaster::{canonical::PokeContext, sensor::*};
            let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9))?;
            let context = || PokeContext::from_json("{}").unwrap();
            let sensors: Vec<_> = leases
                .iter()
                .map(|lease| NewSensor::new(*lease, "k".try_into().unwrap(), context(), settings))
                .collect();
            tx.register(at(61), &sensors)?.fenced().map(drop)
        },
    ];
    for body in bodies {
        let refused = ship(&mut conn, body).unwrap_err();
        assert!(matches!(&refused, Error::Stale { stale, of: 2 } if !stale.is_empty()), "{refused}");
        assert!(!refused.is_retryable());
        assert_eq!(all_rows(&conn), before, "the order went, and so did what was done under the good lease");
    }
    ship(&mut conn, |tx, leases| tx.finish(at(61), &[Finish::success(leases[1])])?.fenced().map(drop))
        .unwrap();
    assert_ne!(all_rows(&conn), before);
}

/// Every pragma that says how a connection is set, and what it says.
fn settings(conn: &Connection) -> Vec<(String, Option<Value>)> {
    // These do something, or say what is in the file or in the library.
    let others = [
        "collation_list",
        "compile_options",
        "database_list",
        "function_list",
        "module_list",
        "pragma_list",
        "data_version",
        "foreign_key_check",
        "freelist_count",
        "incremental_vacuum",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "optimize",
        "page_count",
        "quick_check",
        "schema_version",
        "shrink_memory",
        "stats",
        "table_info",
        "table_list",
        "table_xinfo",
        "wal_checkpoint",
    ];
    let mut names = conn.prepare("SELECT name FROM pragma_pragma_list ORDER BY name").unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let names = names.into_iter().filter(|name| !others.contains(&name.as_str()));
    let ask = |name: String| {
        let mut pragma = conn.prepare(&format!("PRAGMA {name}")).unwrap();
        let answers = pragma.column_count() > 0;
        let value = if answers {
            pragma.query_map([], |row| row.get(0)).unwrap().next().map(Result::unwrap)
        } else {
            None
        };
        (name, value)
    };
    names.map(ask).collect()
}

static WAITS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn the_connection_stays_the_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let mut conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF; PRAGMA cache_size = 77; PRAGMA foreign_keys = ON;
         PRAGMA recursive_triggers = ON; PRAGMA temp_store = MEMORY; PRAGMA user_version = 42; PRAGMA application_id = 7;
         PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; PRAGMA case_sensitive_like = ON;
         CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)",
    )
    .unwrap();
    conn.busy_handler(Some(|_| WAITS.fetch_add(1, Ordering::SeqCst) % 4 < 3)).unwrap();
    conn.set_prepared_statement_cache_capacity(1);
    let before = settings(&conn);
    assert!(before.len() > 40, "{}", before.len());
    assert!(before.contains(&("user_version".into(), Some(Value::Integer(42)))));

    migrate(&conn, &Prefix::default()).unwrap();
    assert_eq!(settings(&conn), before, "after migrate");
    {
        let mut kept = conn.prepare_cached("SELECT count(*) FROM orders").unwrap();
        for step in life() {
            let tx = conn.unchecked_transaction().unwrap();
            tx.execute("INSERT INTO orders (state) VALUES ('new')", []).unwrap();
            (step.run)(&mut SqliteTx::attach(&tx, &Prefix::default()).unwrap()).unwrap();
            tx.commit().unwrap();
            let orders: i64 = kept.query_row([], |row| row.get(0)).unwrap();
            assert!(orders > 0, "a statement of the host's goes on working");
        }
    }
    migrate(&conn, &Prefix::default()).unwrap();
    assert_eq!(settings(&conn), before, "after every operation");

    // The host's own way of waiting is still the one that is asked.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(WAITS.load(Ordering::SeqCst), 0);
    assert!(conn.transaction_with_behavior(TransactionBehavior::Immediate).is_err());
    assert_eq!(WAITS.load(Ordering::SeqCst), 4);

    // Without a cache every statement is prepared anew, and all the same done.
    drop(other);
    conn.set_prepared_statement_cache_capacity(0);
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let mut ours = SqliteTx::attach(&tx, &Prefix::default()).unwrap();
    ours.enqueue(at(0), &[NewTask::new(key("new"))]).unwrap();
    assert_eq!(ours.audit().unwrap(), []);
}

#[test]
fn a_deferred_transaction_that_cannot_write_any_more_is_busy_and_can_be_begun_again() {
    for mode in ["WAL", "DELETE"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        let mut conn = database(&path);
        conn.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        conn.busy_timeout(Duration::from_secs(60)).unwrap();
        let other = Connection::open(&path).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        let task = NewTask::new(key("t"));
        let enqueue_it = |ours: &mut Tx<'_>| ours.enqueue(at(0), std::slice::from_ref(&task));

        let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
        let mut ours = SqliteTx::attach(&tx, &Prefix::default()).unwrap();
        ours.all_pools().unwrap();
        other.execute_batch("BEGIN IMMEDIATE; INSERT INTO orders VALUES (1, 'new')").unwrap();
        // Where readers stop writers, the other one cannot commit, and waits for this one; the timeout would not help.
        assert_eq!(other.execute_batch("COMMIT").is_ok(), mode == "WAL");

        let refused = enqueue_it(&mut ours).unwrap_err();
        assert!(refused.is_retryable(), "{mode}: {refused}");
        assert!(
            matches!(&refused, Error::Store(error) if error.kind() == StoreErrorKind::Busy),
            "{mode}: {refused}"
        );
        assert_eq!(refused.to_string().contains("BEGIN IMMEDIATE"), mode == "WAL", "{refused}");
        let after = ours.all_pools().unwrap_err();
        assert!(after.to_string().contains("roll it back and begin again"), "{after}");
        assert!(ours.check_whole().is_err(), "a store that wraps it must not commit");
        tx.rollback().unwrap();
        if mode == "DELETE" {
            other.execute_batch("ROLLBACK").unwrap();
        }

        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        enqueue_it(&mut SqliteTx::attach(&tx, &Prefix::default()).unwrap()).unwrap();
        tx.commit().unwrap();
    }
}

#[test]
fn the_store_answers_busy_while_a_transaction_of_the_hosts_is_open_and_goes_on_after() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let mut conn = database(&path);
    let store =
        SqliteStore::open(&path, SqliteOptions::new().busy_timeout(Duration::from_millis(50))).unwrap();
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    SqliteTx::attach(&tx, &Prefix::default()).unwrap().enqueue(at(0), &[NewTask::new(key("t"))]).unwrap();
    let refused = store.write(|tx| tx.admit(at(0), &order("t1"))).unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(store.read(|tx| tx.tasks(&[key("t")])).unwrap(), [None], "not committed, not seen");
    tx.commit().unwrap();
    assert_eq!(store.write(|tx| tx.admit(at(0), &order("t1"))).unwrap().granted.len(), 1);
}
