//! A host with a SQLite database, and what such a host's connection keeps.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::error::StoreErrorKind;
use stationmaster::store::sqlite::rusqlite::types::Value;
use stationmaster::store::sqlite::rusqlite::{Connection, TransactionBehavior};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, SqliteTx, migrate};
use stationmaster::store::{SqliteStore, Store, Tx};
use stationmaster::testing::life;
use stationmaster::{Error, NewTask, Result};

use crate::host::{Host, Rows};
use crate::{at, key, order};

/// A database of a host's, with a table of its own and ours.
fn database(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)").unwrap();
    migrate(&conn, &Prefix::default()).unwrap();
    conn
}

/// Keeps its orders in the file of our tables.
pub struct Shop {
    conn: Connection,
    store: SqliteStore,
    _dir: tempfile::TempDir,
}

impl Shop {
    pub fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        let conn = database(&path);
        Self { conn, store: SqliteStore::open(&path, SqliteOptions::new()).unwrap(), _dir: dir }
    }
}

impl Host for Shop {
    fn ship(&mut self, order: i64, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let begin = self.conn.transaction_with_behavior(TransactionBehavior::Immediate);
        let tx = begin.map_err(Error::abort)?;
        tx.execute("INSERT INTO orders VALUES (?1, 'shipped')", [order]).map_err(Error::abort)?;
        body(&mut SqliteTx::attach(&tx, &Prefix::default())?)?;
        tx.commit().map_err(Error::abort)
    }

    fn refuses_ticks(&self) -> bool {
        false
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn rows(&self) -> Rows {
        let conn = &self.conn;
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'sm\\_%' ESCAPE '\\' ORDER BY name";
        let mut tables = conn.prepare(tables).unwrap();
        let tables: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().map(std::result::Result::unwrap).collect();
        let mut ours = Vec::new();
        for table in tables {
            let mut rows = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let width = rows.column_count();
            let mut rows = rows.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let values: Vec<Value> = (0..width).map(|column| row.get(column).unwrap()).collect();
                ours.push(format!("{table} {values:?}"));
            }
        }
        let orders = conn.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
        Rows { ours, orders }
    }
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
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(std::result::Result::unwrap).collect();
    let names = names.into_iter().filter(|name| !others.contains(&name.as_str()));
    let ask = |name: String| {
        let mut pragma = conn.prepare(&format!("PRAGMA {name}")).unwrap();
        let answers = pragma.column_count() > 0;
        let value = if answers {
            pragma.query_map([], |row| row.get(0)).unwrap().next().map(std::result::Result::unwrap)
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

    // Without a cache every statement is prepared again, and still runs.
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
