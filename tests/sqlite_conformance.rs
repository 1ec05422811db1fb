//! The SQLite store keeps the contract: in a file, in memory, and with tables of another prefix.
#![cfg(all(feature = "sqlite", feature = "testing"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stationmaster::conformance::{self, Capabilities, Readers};
use stationmaster::store::sqlite::rusqlite::{Connection, TransactionBehavior};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, SqliteTx, Synchronous, migrate};
use stationmaster::store::{Durability, SqliteStore, Store, StoreInfo, StoreTx, TxMode};
use stationmaster::{Error, Result};

#[test]
fn in_memory() {
    conformance::run(&|| Box::new(SqliteStore::in_memory(SqliteOptions::new()).unwrap()));
}

#[test]
fn in_files() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    let open = || -> Box<dyn Store> {
        count.set(count.get() + 1);
        let options =
            SqliteOptions::new().synchronous(Synchronous::Normal).prefix(Prefix::new("wf_").unwrap());
        Box::new(SqliteStore::open(dir.path().join(format!("{}.db", count.get())), options).unwrap())
    };
    conformance::run_with(Capabilities::new().readers(Readers::GoOn), &open);
}

#[test]
fn answers_as_the_memory_store_does() {
    conformance::model(&|| Box::new(SqliteStore::in_memory(SqliteOptions::new()).unwrap()), 0..25, 80);
}

/// A host that owns the connection and its transactions.
#[derive(Debug)]
struct Host {
    conn: Mutex<Connection>,
    prefix: Prefix,
}

impl Host {
    fn open(path: &Path) -> Self {
        let conn = Connection::open(path).unwrap();
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        conn.busy_timeout(Duration::from_secs(10)).unwrap();
        let prefix = Prefix::default();
        migrate(&conn, &prefix).unwrap();
        Self { conn: Mutex::new(conn), prefix }
    }
}

impl Store for Host {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("sqlite of a host", 1, Durability::Process)
    }

    fn transact(&self, _: TxMode, body: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Error::abort)?;
        body(&mut SqliteTx::attach(&tx, &self.prefix)?)?;
        tx.commit().map_err(Error::abort)
    }
}

#[test]
fn in_transactions_that_a_host_owns() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    conformance::run(&|| {
        count.set(count.get() + 1);
        Box::new(Host::open(&dir.path().join(format!("{}.db", count.get()))))
    });
}
