//! The SQLite store: in memory, in a file, and in transactions that a host owns.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stationmaster::conformance::{self, Capabilities, Readers};
use stationmaster::store::sqlite::rusqlite::{Connection, TransactionBehavior};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, SqliteTx, migrate};
use stationmaster::store::{Durability, SqliteStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::{Error, Result};

use crate::bent::{Bent, Fault};

fn in_memory() -> Box<dyn Store> {
    Box::new(SqliteStore::in_memory(SqliteOptions::new()).unwrap())
}

/// Makes stores in files of their own, as long as it lives.
fn in_files(make: impl Fn(&Path) -> Box<dyn Store>) -> impl Fn() -> Box<dyn Store> {
    let (folder, count) = (tempfile::tempdir().unwrap(), Cell::new(0));
    move || {
        count.set(count.get() + 1);
        make(&folder.path().join(format!("{}.db", count.get())))
    }
}

fn in_file() -> impl Fn() -> Box<dyn Store> {
    let options = SqliteOptions::new().durability(Durability::Process).prefix(Prefix::new("wf_").unwrap());
    in_files(move |path| Box::new(SqliteStore::open(path, options.clone()).unwrap()))
}

#[test]
fn sqlite_in_memory() {
    conformance::run(&in_memory);
}

#[test]
fn sqlite_in_a_file() {
    conformance::run_with(Capabilities::new().readers(Readers::GoOn), &in_file());
}

#[test]
fn sqlite_behind_a_decorator() {
    conformance::run(&|| Box::new(Bent::new(in_memory(), Fault::None)));
}

#[test]
fn sqlite_answers_as_the_memory_store_does() {
    conformance::model(&in_memory, 0..25, 80);
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

    fn transact(&self, _: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Error::abort)?;
        let mut ours = SqliteTx::attach(&tx, &self.prefix)?;
        body(&mut ours)?;
        ours.check_whole()?;
        tx.commit().map_err(Error::abort)
    }
}

#[test]
fn sqlite_in_transactions_that_a_host_owns() {
    conformance::run(&in_files(|path| Box::new(Host::open(path))));
}
