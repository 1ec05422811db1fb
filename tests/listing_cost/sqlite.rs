//! SQLite calls back after each step of its machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stationmaster::store::sqlite::rusqlite::Connection;
use stationmaster::store::sqlite::{Prefix, SqliteTx};
use stationmaster::store::{ReadTx, SqliteStore};

use super::{Cost, Costs, compare, questions, undocumented};
use crate::world::World;

/// The steps that a call takes, and what it returns.
fn steps<T>(conn: &mut Connection, call: impl Fn(&mut ReadTx<'_>) -> T) -> (T, u64) {
    let count = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&count);
    let step = move || {
        counting.fetch_add(1, Ordering::Relaxed);
        false
    };
    conn.execute_batch("BEGIN").unwrap();
    conn.progress_handler(1, Some(step)).unwrap();
    let returned = call(&mut SqliteTx::attach(conn, &Prefix::default()).unwrap());
    conn.progress_handler(0, None::<fn() -> bool>).unwrap();
    conn.execute_batch("ROLLBACK").unwrap();
    (returned, count.load(Ordering::Relaxed))
}

fn filled(tasks: usize) -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    World::fill(&SqliteStore::open(&path, Default::default()).unwrap(), tasks);
    (folder, Connection::open(path).unwrap())
}

fn costs(tasks: usize) -> Costs {
    let (_folder, mut conn) = filled(tasks);
    let cost = |(question, ask): (String, super::Ask)| {
        let (returned, work) = steps(&mut conn, ask);
        (question, Cost { returned: returned as u64, work, buffers: 0 })
    };
    questions().into_iter().map(cost).collect()
}

#[test]
fn lists_cost_what_they_return_on_sqlite() {
    compare("SQLite", costs);
}

#[test]
fn a_list_that_passes_tasks_costs_more_on_sqlite() {
    let cost = |tasks| {
        let (_folder, mut conn) = filled(tasks);
        steps(&mut conn, |tx| tx.list_tasks(&undocumented()).unwrap()).1
    };
    assert!(cost(4_000) > 2 * cost(1_000), "the steps say what a list reads");
}
