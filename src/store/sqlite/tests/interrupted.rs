//! Tests: SQLite is interrupted at each of its steps in turn.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;

use super::super::{SqliteOptions, SqliteStore};
use super::{kind, step};
use crate::admission::IfExists;
use crate::error::StoreErrorKind;
use crate::id::RequestId;
use crate::pool::{PoolSpec, Slots};
use crate::store::Durability;
use crate::store::contract::SurveyQuery;
use crate::store::{Store, TxMode};
use crate::testing::{Snapshot, Step, life, watch};

fn granted(store: &SqliteStore, round: i64) -> bool {
    let query = SurveyQuery::new().request(RequestId::new(format!("tick {round}")).unwrap());
    store.read(|tx| tx.raw().survey(&query).map_err(Into::into)).unwrap().granted.is_some()
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
    let options = SqliteOptions::new().durability(Durability::Process);
    let store = SqliteStore::open(dir.path().join("jobs.db"), options).unwrap();
    store
        .write(|tx| tx.define([PoolSpec::new("default_pool", Slots::Unlimited)?], IfExists::Replace))
        .unwrap();
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
        assert_eq!(store.write(|tx| tx.audit()).unwrap(), [], "{at}");
        if !reached {
            break;
        }
    }
    assert!(undone > 300 && open > 0, "{undone} rolled back, {open} with an open end, of {at}");
}

/// Opens a store in which these steps were done. Its readers are never interrupted.
fn lived(dir: &Path, past: &[Step], left: &Arc<AtomicI64>) -> SqliteStore {
    let options = SqliteOptions::new().durability(Durability::Process);
    let path = tempfile::Builder::new().suffix(".db").tempfile_in(dir).unwrap().into_temp_path();
    let store = SqliteStore::open(path.keep().unwrap(), options).unwrap();
    past.iter().for_each(|past| apply(&store, *past).unwrap());
    interrupt(&store, left);
    store
}

fn apply(store: &SqliteStore, step: Step) -> crate::error::Result<()> {
    store.transact(TxMode::Write, &mut |tx| (step.run)(tx))
}

fn look(store: &SqliteStore) -> Snapshot {
    let seen = store.read(|tx| Ok(Snapshot::take(tx, &watch())?)).unwrap();
    assert_eq!(seen.audit(), []);
    seen
}

/// The steps at which an operation of this many SQLite steps is interrupted: all steps of its beginning and its
/// end, where BEGIN and COMMIT are. In the short form, only every few steps in between.
fn places(all: i64) -> Vec<i64> {
    let stride =
        if std::env::var("STATIONMASTER_FAULTS").is_ok_and(|form| form == "long") { 1 } else { all / 40 + 1 };
    (1..=all).filter(|at| *at <= 12 || *at > all - 12 || at % stride == 0).collect()
}

#[test]
fn every_operation_that_writes_is_all_or_nothing_wherever_it_is_interrupted() {
    let (dir, steps) = (tempfile::tempdir().unwrap(), life());
    let (mut undone, mut open) = (0, 0);
    for (past, step) in steps.iter().enumerate().map(|(at, step)| (&steps[..at], *step)) {
        let left = Arc::new(AtomicI64::new(0));
        let mut store = lived(dir.path(), past, &left);
        let before = look(&store);
        left.store(i64::MAX, Ordering::Relaxed);
        apply(&store, step).unwrap();
        let all = i64::MAX - left.swap(0, Ordering::Relaxed);
        let after = look(&store);
        store = lived(dir.path(), past, &left);
        for at in places(all) {
            left.store(at, Ordering::Relaxed);
            let answer = apply(&store, step);
            left.store(0, Ordering::Relaxed);
            let seen = look(&store);
            match answer {
                Ok(()) => assert_eq!(seen, after, "{} at {at} of {all}", step.name),
                Err(error) if error.is_indeterminate() => {
                    assert!(seen == before || seen == after, "{} at {at} of {all}: {error}", step.name);
                    open += 1;
                }
                Err(error) => {
                    assert_eq!(kind(&error), StoreErrorKind::Backend, "{} at {at}: {error}", step.name);
                    assert_eq!(seen, before, "{} at {at} of {all}", step.name);
                    undone += 1;
                }
            }
            if seen == after {
                store = lived(dir.path(), past, &left);
            }
        }
        apply(&store, step).unwrap();
        assert_eq!(look(&store), after, "{}: the same handle goes on", step.name);
    }
    println!("{undone} rolled back, {open} with an open end");
    assert!(undone > 1_000 && open > 30, "{undone} rolled back, {open} with an open end");
}

#[test]
fn an_error_that_the_body_passes_over_still_rolls_back() {
    let store = SqliteStore::in_memory(SqliteOptions::new()).unwrap();
    let left = Arc::new(AtomicI64::new(0));
    interrupt(&store, &left);
    let refused = store.transact(TxMode::Write, &mut |tx| {
        tx.define([PoolSpec::new("p", Slots::Limited(1))?], IfExists::Replace)?;
        left.store(5, Ordering::Relaxed);
        assert!(step(tx, 1).is_err());
        assert!(tx.all_pools().is_err(), "nothing more is done in it");
        Ok(())
    });
    assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Backend);
    assert_eq!(store.read(|tx| tx.all_pools()).unwrap().len(), 1);
}
