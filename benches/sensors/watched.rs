//! A store on a connection of the bench's own, where SQLite itself tells what is run, read and written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use stationmaster::error::Result;
use stationmaster::store::sqlite::rusqlite::Connection;
use stationmaster::store::sqlite::rusqlite::trace::{TraceEvent, TraceEventCodes};
use stationmaster::store::sqlite::{Prefix, SqliteTx};
use stationmaster::store::{Durability, Store, StoreInfo, Tx, TxMode};

/// Rows that each statement answered.
type Seen = Arc<Mutex<BTreeMap<String, u64>>>;

/// What happened on the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic {
    /// Statements run, each with the rows that it answered.
    pub(crate) read: BTreeMap<String, u64>,
    /// Rows inserted, updated and deleted.
    pub(crate) written: u64,
}

impl Traffic {
    /// Rows answered by statements on this table.
    pub(crate) fn read_of(&self, table: &str) -> u64 {
        self.read.iter().filter(|(sql, _)| sql.contains(table)).map(|(_, rows)| rows).sum()
    }

    pub(crate) fn rows_read(&self) -> u64 {
        self.read.values().sum()
    }
}

#[derive(Debug)]
pub(crate) struct Watched {
    conn: Mutex<Connection>,
    seen: Seen,
}

impl Watched {
    pub(crate) fn open(path: &Path) -> Self {
        let mut conn = Connection::open(path).expect("a database");
        conn.pragma_update(None, "synchronous", "NORMAL").expect("set");
        let seen = Seen::default();
        let into = Arc::clone(&seen);
        let events = TraceEventCodes::SQLITE_TRACE_STMT | TraceEventCodes::SQLITE_TRACE_ROW;
        let note = move |event: TraceEvent<'_>| match event {
            TraceEvent::Stmt(statement, _) => {
                into.lock().entry(statement.sql().into_owned()).or_default();
            }
            TraceEvent::Row(statement) => *into.lock().entry(statement.sql().into_owned()).or_default() += 1,
            _ => {}
        };
        conn.trace_v2(events, Some(note)).expect("traced");
        Self { conn: Mutex::new(conn), seen }
    }

    /// What happens in `work`.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Traffic) {
        let before = self.conn.lock().total_changes();
        self.seen.lock().clear();
        let answer = work();
        let mut read = std::mem::take(&mut *self.seen.lock());
        read.retain(|sql, _| !sql.starts_with("BEGIN") && !sql.starts_with("COMMIT"));
        (answer, Traffic { read, written: self.conn.lock().total_changes() - before })
    }
}

impl Store for Watched {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("watched", 1, Durability::Process)
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let conn = self.conn.lock();
        let begin = if mode == TxMode::Read { "BEGIN" } else { "BEGIN IMMEDIATE" };
        conn.execute_batch(begin).expect("begun");
        let done = body(&mut SqliteTx::attach(&conn, &Prefix::default())?);
        conn.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).expect("ended");
        done
    }
}
