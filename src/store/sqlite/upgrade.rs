//! Brings a schema up to date, one step at a time, while other connections use it. Lets those connections check
//! whether they may continue.
//!
//! Each step is its own transaction. So a process that is killed leaves only complete steps behind, and the
//! next one continues after the last of them. Between two steps another process, even of an older version, may
//! run. So each step checks again under the writer lock.

use std::sync::LazyLock;

use rusqlite::Connection;

use super::conn::check_library;
use super::error::Outcome;
use super::prefix::Prefix;
use super::schema::{self, STEPS, VERSION};
use crate::error::StoreResult;
use crate::store::sql::ledger::Goal;

/// Reads nothing, and fails if processes of this version must not continue.
static GATE: LazyLock<String> = LazyLock::new(|| format!("SELECT one FROM {} LIMIT 0", STEPS.gate(VERSION)));

/// Refuses a transaction, at its beginning, if this version must not continue. No step can be applied during the
/// transaction.
pub(super) fn pass_gate(conn: &Connection, prefix: &Prefix) -> Outcome<()> {
    let gate: &'static str = GATE.as_str();
    let passed = prefix.statement(gate, |sql| {
        let mut gate = conn.prepare_cached(sql)?;
        gate.query([])?.next().map(|_| ())
    });
    match passed {
        Err(error) if super::error::is_missing(&error) => {
            schema::check(conn, prefix)?;
            Err(error.into())
        }
        passed => Ok(passed?),
    }
}

/// Creates the store's tables on a host's connection, or brings them to the version that this version of the crate
/// needs.
///
/// Each step is its own transaction, and only one caller at a time applies it. Inside a host's transaction, all
/// steps take part in that one. A process of the previous version of the crate works beside these steps. The
/// steps that it cannot work with are left to [`finish_upgrade`], or to the next version of the crate that
/// changes the schema. `docs/upgrading.md` in the repository describes a whole upgrade. Touches no pragma.
///
/// # Errors
///
/// [`StoreErrorKind::Schema`](crate::error::StoreErrorKind::Schema) if the tables were written by another
/// program, or by a newer version of the crate that this one cannot work beside, and any error from SQLite.
/// The step that failed was undone; the steps before it are done.
///
/// # Examples
///
/// ```
/// use stationmaster::store::sqlite::{Prefix, migrate, rusqlite::Connection};
/// let conn = Connection::open_in_memory()?;
/// migrate(&conn, &Prefix::default())?;
/// assert!(conn.table_exists(None, "sm_task")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn migrate(conn: &Connection, prefix: &Prefix) -> StoreResult<()> {
    bring(conn, prefix, Goal::Working)
}

/// Ends an upgrade: applies what [`migrate`] does, and the steps that older versions cannot work beside.
///
/// Call it when no process of an older version has the file open. One that still has it open is refused at its
/// next transaction, with kind [`StoreErrorKind::Schema`](crate::error::StoreErrorKind::Schema). Until this is
/// called, a process of the previous version may come back. If it is never called, the next version of the
/// crate that changes the schema does it when it is opened.
///
/// # Errors
///
/// As [`migrate`].
///
/// # Examples
///
/// ```
/// use stationmaster::store::sqlite::{Prefix, finish_upgrade, rusqlite::Connection};
/// let conn = Connection::open_in_memory()?;
/// finish_upgrade(&conn, &Prefix::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn finish_upgrade(conn: &Connection, prefix: &Prefix) -> StoreResult<()> {
    bring(conn, prefix, Goal::Whole)
}

fn bring(conn: &Connection, prefix: &Prefix, goal: Goal) -> StoreResult<()> {
    check_library(rusqlite::version_number())?;
    let mut applied = schema::inspect(conn, prefix)?.applied();
    while !STEPS.next(applied, goal).is_empty() {
        applied = step(conn, prefix, goal)?;
    }
    Ok(())
}

/// Applies the next step, unless another migrator did so meanwhile. Returns how many steps are then applied.
fn step(conn: &Connection, prefix: &Prefix, goal: Goal) -> Outcome<usize> {
    let was_open = !conn.is_autocommit();
    let (begin, commit, undo) = if was_open {
        let undo = "ROLLBACK TO stationmaster_migrate; RELEASE stationmaster_migrate";
        ("SAVEPOINT stationmaster_migrate", "RELEASE stationmaster_migrate", undo)
    } else {
        ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")
    };
    let done: Outcome<usize> = (|| {
        conn.execute_batch(begin)?;
        let next = STEPS.next(schema::inspect(conn, prefix)?.applied(), goal);
        let applied = next.end;
        if !next.is_empty() {
            conn.execute_batch(&prefix.apply(&STEPS.sql(next)))?;
        }
        conn.execute_batch(commit)?;
        Ok(applied)
    })();
    if done.is_err() && (was_open || !conn.is_autocommit()) {
        // The first error is the one to report. A failing undo leaves the host's transaction to the host.
        let _ = conn.execute_batch(undo);
    }
    done
}
