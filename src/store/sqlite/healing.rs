//! Tests: whatever fails, and wherever, the store goes on from a state that is "before" or "after".

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;

use super::{SqliteOptions, SqliteStore, Synchronous};
use crate::error::{Error, Result, StoreErrorKind};
use crate::id::{Holder, PoolName, RequestId, TaskKey};
use crate::lease::TaskNo;
use crate::pool::{PoolSpec, Slots};
use crate::store::{GrantBatch, Store, StoreExt, StoreTx, TxMode};
use crate::task::NewTask;
use crate::time::from_micros;

fn kind(error: &Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("{other}"),
    }
}

/// A step with several statements: enqueues a task, grants it, and notes that.
fn step(tx: &mut dyn StoreTx, round: i64) -> Result<()> {
    let key = TaskKey::new("n", "w", "r", format!("t{round}"))?;
    let task = NewTask::new(key).limit(format!("l{round}").as_str().try_into()?).check(from_micros(0))?;
    let inserted = tx.insert_tasks_if_absent(&[task])?;
    let crate::store::Inserted::New(no) = inserted[0] else { panic!("t{round} is there: {inserted:?}") };
    let holder = Holder::new("h")?;
    let (now, expires_at) = (from_micros(1), from_micros(2));
    let granted = tx.grant_if_ready(&GrantBatch { tasks: &[no], holder: &holder, now, expires_at })?;
    let limits: Vec<_> = granted[0].lane.limits.iter().map(|key| (key.clone(), 1)).collect();
    tx.take_limits_if_open(&limits)?;
    tx.take_slots_if_open(&[(PoolName::default_pool(), 1)])?;
    Ok(tx.note_request(&RequestId::new(format!("tick {round}"))?, now, &[granted[0].lease_ref()])?)
}

fn granted(store: &SqliteStore, round: i64) -> bool {
    let request = RequestId::new(format!("tick {round}")).unwrap();
    store.read(|tx| Ok(tx.granted(&request)?)).unwrap().is_some()
}

/// Interrupts the writer at its `at`-th step from now, once.
fn interrupt(store: &SqliteStore, left: &Arc<AtomicI64>) {
    store.writer.with(|conn| {
        let left = Arc::clone(left);
        let handler = move || left.fetch_sub(1, Ordering::Relaxed) == 1;
        let _ = conn.as_mut().unwrap().progress_handler(1, Some(handler));
    });
}

#[test]
fn an_interrupt_at_every_step_leaves_before_or_after_and_a_working_store() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new().synchronous(Synchronous::Normal);
    let store = SqliteStore::open(dir.path().join("jobs.db"), options).unwrap();
    store.write(|tx| Ok(tx.put_pools(&[PoolSpec::new("default_pool", Slots::Unlimited)?])?)).unwrap();
    let left = Arc::new(AtomicI64::new(0));
    interrupt(&store, &left);

    let (mut at, mut undone, mut open) = (0, 0, 0);
    loop {
        at += 1;
        left.store(at, Ordering::Relaxed);
        let answer = store.transact(TxMode::Write, &mut |tx| step(tx, at));
        let reached = left.swap(0, Ordering::Relaxed) <= 0;
        match answer {
            Ok(()) => assert!(granted(&store, at), "{at}: committed"),
            Err(error) if error.is_indeterminate() => open += 1,
            Err(error) => {
                assert_eq!(kind(&error), StoreErrorKind::Backend, "{at}: {error}");
                assert!(!granted(&store, at), "{at}: {error}");
                undone += 1;
            }
        }
        let sound = store.writer.with(|conn| conn.as_ref().is_some_and(Connection::is_autocommit));
        assert!(sound, "{at}: the connection is in no transaction");
        assert_eq!(store.write(|tx| Ok(tx.audit()?)).unwrap(), [], "{at}");
        if !reached {
            break;
        }
    }
    assert!(undone > 300 && open > 0, "{undone} rolled back, {open} with an open end, of {at}");
}

#[test]
fn an_error_that_the_body_passes_over_still_rolls_back() {
    let store = SqliteStore::in_memory(SqliteOptions::new()).unwrap();
    let left = Arc::new(AtomicI64::new(0));
    interrupt(&store, &left);
    let refused = store.transact(TxMode::Write, &mut |tx| {
        tx.put_pools(&[PoolSpec::new("p", Slots::Limited(1))?])?;
        left.store(5, Ordering::Relaxed);
        assert!(step(tx, 1).is_err());
        assert!(tx.all_pools().is_err(), "nothing more is done in it");
        Ok(())
    });
    assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Backend);
    assert_eq!(store.read(|tx| Ok(tx.all_pools()?)).unwrap().len(), 1);
}

#[test]
fn a_refused_argument_does_not_end_the_transaction() {
    let store = SqliteStore::in_memory(SqliteOptions::new()).unwrap();
    let wrong = crate::store::Move::new(
        crate::lease::LeaseRef::new(TaskNo(1), 0),
        crate::store::StateSet::default(),
        crate::task::TaskState::Running,
    );
    let pools = store.write(|tx| {
        tx.put_pools(&[PoolSpec::new("p", Slots::Limited(1))?])?;
        assert_eq!(tx.move_if(std::slice::from_ref(&wrong)).unwrap_err().kind(), StoreErrorKind::Backend);
        Ok(tx.all_pools()?)
    });
    assert_eq!(pools.unwrap().len(), 2);
}

#[test]
fn a_full_medium_is_told_and_the_same_handle_works_after() {
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
        store.write(|tx| Ok(tx.put_pools(std::slice::from_ref(&pool))?))
    };
    fill("first").unwrap();
    pages(300);
    let full = fill("second").unwrap_err();
    assert_eq!(kind(&full), StoreErrorKind::Full);
    assert_eq!(store.read(|tx| Ok(tx.all_pools()?)).unwrap().len(), 2, "what was committed is safe");
    store.write(|tx| Ok(tx.put_pools(&[PoolSpec::new("small", Slots::Limited(1))?])?)).unwrap();
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
