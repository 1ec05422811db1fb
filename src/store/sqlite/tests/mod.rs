//! Tests: whatever fails, and wherever, the store continues from the state before the operation or after it.

use super::{SqliteOptions, SqliteStore};
use crate::admission::IfExists;
use crate::error::{Error, Result, StoreErrorKind};
use crate::id::{Holder, RequestId, TaskKey};
use crate::lease::TaskId;
use crate::pool::{PoolSpec, Slots};
use crate::store::Tx;
use crate::store::contract::GrantBatch;
use crate::task::NewTask;
use crate::time::Timestamp;

fn kind(error: &Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("{other}"),
    }
}

/// A step with several statements: enqueues a task, grants it, and records that.
fn step(tx: &mut Tx<'_>, round: i64) -> Result<()> {
    let key = TaskKey::new("n", "w", "r", format!("t{round}"))?;
    let task =
        NewTask::new(key).limit(format!("l{round}").as_str().try_into()?).check(Timestamp::UNIX_EPOCH)?;
    let inserted = tx.raw().insert_tasks_if_absent(&[task])?;
    let crate::store::Inserted::New(id) = inserted[0] else { panic!("t{round} is there: {inserted:?}") };
    let ids = [id];
    let holder = Holder::new("h")?;
    let (now, expires_at) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
    let request = RequestId::new(format!("tick {round}"))?;
    let batch = GrantBatch::new(&ids, &holder, now, expires_at).request(&request);
    assert!(tx.raw().grant_if_open(&batch)?.is_whole(&batch));
    Ok(())
}

#[cfg(feature = "testing")]
mod interrupted;

#[test]
fn a_refused_argument_does_not_end_the_transaction() {
    let store = SqliteStore::in_memory(SqliteOptions::new()).unwrap();
    let wrong = crate::store::contract::Move::new(
        crate::lease::LeaseRef::new(TaskId(1), 0),
        crate::task::TaskState::Scheduled,
        crate::task::TaskState::Running,
    );
    let pools = store.write(|tx| {
        tx.define([PoolSpec::new("p", Slots::Limited(1))?], IfExists::Replace)?;
        assert_eq!(
            tx.raw().move_if(std::slice::from_ref(&wrong)).unwrap_err().kind(),
            StoreErrorKind::Backend
        );
        tx.all_pools()
    });
    assert_eq!(pools.unwrap().len(), 2);
}

#[test]
fn a_full_medium_is_reported_and_the_same_handle_works_after() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("jobs.db"), SqliteOptions::new()).unwrap();
    let pages = |count: i64| {
        store.writer.with(|conn| {
            let conn = conn.as_ref().unwrap();
            conn.pragma_update_and_check(None, "max_page_count", count, |_| Ok(())).unwrap();
        });
    };
    let fill = |name: &str| {
        let pool = PoolSpec::new(name, Slots::Limited(1)).unwrap().described("x".repeat(1 << 20));
        store.write(|tx| tx.define([&pool], IfExists::Replace))
    };
    fill("first").unwrap();
    pages(300);
    let full = fill("second").unwrap_err();
    assert_eq!(kind(&full), StoreErrorKind::Full);
    assert_eq!(store.read(|tx| tx.all_pools()).unwrap().len(), 2, "what was committed is safe");
    store.write(|tx| tx.define([PoolSpec::new("small", Slots::Limited(1))?], IfExists::Replace)).unwrap();
    pages(1_000_000);
    fill("second").unwrap();
}

#[test]
fn a_lost_connection_is_opened_anew_unless_it_was_all_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = SqliteStore::open(dir.path().join("jobs.db"), SqliteOptions::new()).unwrap();
    file.writer.with(|conn| *conn = None);
    step_on(&file).unwrap();
    let memory = SqliteStore::in_memory(SqliteOptions::new()).unwrap();
    memory.writer.with(|conn| *conn = None);
    assert_eq!(kind(&step_on(&memory).unwrap_err()), StoreErrorKind::Backend);
}

fn step_on(store: &SqliteStore) -> Result<()> {
    store.write(|tx| step(tx, 1))
}

#[test]
fn a_file_that_was_replaced_is_not_written_to_when_it_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = SqliteStore::open(&path, SqliteOptions::new()).unwrap();
    store.writer.with(|conn| *conn = None);
    std::fs::write(&path, "").unwrap();
    assert_eq!(kind(&step_on(&store).unwrap_err()), StoreErrorKind::Schema);
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}
