//! A store of a host's own: the scheduler works on the one connection that the host has, opened and tuned as the host wants it (a key,
//! a VFS, pragmas), and each of its commits leaves a line in the host's journal, in the same transaction. The conformance suite
//! proves that it is a store like the crate's.
//!
//! ```sh
//! cargo run --features testing --example custom_store
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use rusqlite::{Connection, TransactionBehavior::Immediate};
use stationmaster::error::{Result, StoreErrorKind};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::service::{Admitter, AdmitterOptions, Service};
use stationmaster::store::sqlite::{Prefix, SqliteTx, commit_error, migrate, rusqlite, store_error};
use stationmaster::store::{Durability, Store, StoreInfo, Tx, TxMode};
use stationmaster::{Error, NewTask, TaskKey, conformance};

/// The host's database: one connection, for its own tables and for the scheduler.
#[derive(Debug)]
struct Database {
    conn: Mutex<Connection>,
    prefix: Prefix,
}

impl Database {
    fn new(conn: Connection) -> Result<Self> {
        conn.execute_batch(
            "PRAGMA secure_delete = ON;
             CREATE TABLE IF NOT EXISTS journal (no INTEGER PRIMARY KEY, at TEXT NOT NULL, changes INTEGER NOT NULL)",
        )
        .map_err(store_error)?;
        let prefix = Prefix::default();
        migrate(&conn, &prefix)?;
        Ok(Self { conn: Mutex::new(conn), prefix })
    }

    /// The host's own use of the connection.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(work(&mut conn).map_err(store_error)?)
    }
}

impl Store for Database {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("the shop's database", 1, Durability::Process)
    }

    /// Dropped without a commit, be it by an error or by a panic of the body, the transaction is rolled back.
    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = conn.total_changes();
        let tx = conn.transaction_with_behavior(Immediate).map_err(store_error)?;
        let mut ours = SqliteTx::attach(&tx, &self.prefix)?;
        body(&mut ours)?;
        ours.check_whole()?;
        let changes = tx.total_changes() - before;
        if mode == TxMode::Write && changes > 0 {
            let line = "INSERT INTO journal (at, changes) VALUES (datetime('now'), ?1)";
            tx.execute(line, [i64::try_from(changes).unwrap_or(i64::MAX)]).map_err(store_error)?;
        }
        tx.commit().map_err(commit_error)?;
        Ok(())
    }
}

fn lines(db: &Database) -> Result<i64> {
    db.with(|conn| conn.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let in_memory = || Database::new(Connection::open_in_memory().map_err(store_error)?);
    conformance::run(&|| Box::new(in_memory().expect("a database in memory")));
    let cases = conformance::cases(conformance::Capabilities::new()).len();
    println!("it passes all {cases} cases of the conformance suite");

    // Services take it as they take any store.
    let (db, now) = (Arc::new(in_memory()?), Utc::now());
    let store: &dyn Store = &*db;
    let task = NewTask::new(TaskKey::new("shop", "orders", "7", "ship")?);
    store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    let options = AdmitterOptions::default().lease(Duration::from_secs(30));
    let mut admitter = Admitter::new(db.clone(), "packer".try_into()?, options)?;
    let lease = admitter.tick(now)?.granted[0].lease_ref();
    store.write(|tx| tx.finish(now, &[Finish::success(lease)])?.fenced())?;
    assert_eq!(lines(&db)?, 3, "enqueued, admitted, finished");

    // What is not committed leaves no line, and what changes nothing neither.
    let again = store.write(|tx| tx.finish(now, &[Finish::success(lease)])?.fenced());
    assert!(matches!(again, Err(Error::Repeated { .. })));
    assert!(admitter.tick(now)?.granted.is_empty());
    assert_eq!(lines(&db)?, 3);

    // The host's errors are sorted as the crate's are.
    let refused =
        db.with(|conn| conn.execute("INSERT INTO journal VALUES (1, '', 0)", [])).expect_err("1 is taken");
    assert!(matches!(refused, Error::Store(error) if error.kind() == StoreErrorKind::Conflict));
    println!("every commit of the scheduler left a line in the journal");
    Ok(())
}
