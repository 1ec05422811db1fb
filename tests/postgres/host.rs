//! Transactions that the host owns.

use std::sync::mpsc;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{IfExists, Subject};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Invalid, StoreErrorKind};
use stationmaster::ops::{AdmitRequest, Mark, Marked, Position, StopBeforeStart};
use stationmaster::run::{ActiveQuery, RunKey, RunRecord, RunStatus};
use stationmaster::store::postgres::tokio_postgres::{Client, IsolationLevel};
use stationmaster::store::postgres::{self, Schema};
use stationmaster::store::{PostgresStore, Tx};
use stationmaster::testing::raw;
use stationmaster::{Error, Result, TaskState, Timestamp};

use crate::scratch::{Scratch, with_client};
use crate::{kind, pool, pools, task};

/// A store, and the host's own table beside it.
fn scene() -> (Scratch, PostgresStore) {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    crate::scratch::query(&format!("CREATE TABLE \"{}\".app (x INT)", scratch.0));
    (scratch, store)
}

fn rows_of_the_host(schema: &Schema) -> i64 {
    crate::scratch::rows(&format!("SELECT count(*) FROM \"{schema}\".app"))[0].get(0)
}

#[test]
fn host_rows_and_ours_commit_together_or_not_at_all() {
    let (scratch, store) = scene();
    for (commit, expected) in [(false, 0), (true, 1)] {
        let schema = scratch.0.clone();
        with_client(move |mut client| async move {
            let transaction = client.transaction().await.unwrap();
            transaction.batch_execute(&format!("INSERT INTO \"{schema}\".app VALUES (1)")).await.unwrap();
            let now = SystemClock.now();
            let enqueued = postgres::tx(&transaction, &schema, move |tx| {
                let inserted = tx.enqueue(now, &[task("t")])?;
                assert_eq!(tx.audit()?, []);
                // No tick runs here, but what one would admit is known, the host's own task included.
                let order = AdmitRequest::new(
                    "h".try_into()?,
                    "tick".try_into()?,
                    9,
                    std::time::Duration::from_secs(60),
                );
                assert_eq!(tx.preview(now, &order)?.granted.len(), 1);
                assert_eq!(tx.positions(&[task("t").key], 9)?, [Position::Before(0)]);
                Ok(inserted)
            });
            assert_eq!(enqueued.await.unwrap().len(), 1);
            match commit {
                true => transaction.commit().await.unwrap(),
                false => transaction.rollback().await.unwrap(),
            }
        });
        let ours = store.read(|tx| tx.tasks(&[task("t").key])).unwrap();
        assert_eq!(
            (rows_of_the_host(&scratch.0), ours.iter().flatten().count()),
            (expected, expected as usize)
        );
    }
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// What a host's transaction answers that cancels a task, when it read something before somebody else changed
/// the task.
fn after_another_writer(level: IsolationLevel) -> Result<usize> {
    let (scratch, store) = scene();
    let (schema, now) = (scratch.0.clone(), Timestamp::from_micros(1));
    let cancel = move |tx: &mut Tx<'_>, state| tx.mark(now, &[Mark::new(task("t").key, state, "m")]);
    store.write(|tx| tx.enqueue(now, &[task("t")])).unwrap();
    with_client(move |mut client| async move {
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        transaction.query("SELECT 1", &[]).await.unwrap();
        store.write(|tx| cancel(tx, TaskState::Skipped)).unwrap();
        let answer = postgres::tx(&transaction, &schema, move |tx| {
            let marked = cancel(tx, TaskState::Failed)?;
            Ok(marked.iter().filter(|marked| matches!(marked, Marked::Ended(_))).count())
        });
        let answer = answer.await;
        transaction.rollback().await.unwrap();
        answer
    })
}

#[test]
fn a_task_that_changed_since_the_view_is_refused_as_retryable() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let refused = after_another_writer(level).unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Conflict, "{refused}");
        assert!(refused.is_retryable());
    }
    assert_eq!(after_another_writer(IsolationLevel::ReadCommitted).unwrap(), 0, "each statement looks anew");
}

const SILENT_FOR: std::time::Duration = std::time::Duration::from_micros(1);

/// They would decide on what was there before their lock.
#[test]
fn definitions_and_reaping_are_refused_above_read_committed() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let (scratch, store) = scene();
        let schema = scratch.0.clone();
        with_client(move |mut client| async move {
            let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
            let body = |tx: &mut Tx<'_>| {
                let name = pool("p", 1).name;
                let refused = [
                    tx.define([pool("p", 7)], IfExists::Replace).map(drop),
                    tx.undefine(&[Subject::Pool(name.clone())]).map(drop),
                    tx.pause(&[Subject::Pool(name)]).map(drop),
                    tx.define([LimitSpec::new("l".try_into()?, 1)?], IfExists::Replace).map(drop),
                    tx.undefine(&[Subject::Key("l".try_into()?)]).map(drop),
                    tx.reap(Timestamp::from_micros(1), 1).map(drop),
                    tx.close_silent_runs(Timestamp::from_micros(9), SILENT_FOR, RunStatus::Killed, 1)
                        .map(drop),
                ];
                for refused in refused.map(Result::unwrap_err) {
                    assert!(matches!(refused, Error::Invalid(Invalid::AboveReadCommitted)), "{refused}");
                    assert!(refused.to_string().contains("call it at READ COMMITTED"), "{refused}");
                }
                tx.enqueue(Timestamp::from_micros(1), &[task("t")])
            };
            postgres::tx(&transaction, &schema, body).await.unwrap();
            transaction.commit().await.unwrap();
        });
        assert_eq!(pools(&store), 0);
        assert!(store.read(|tx| tx.tasks(&[task("t").key])).unwrap()[0].is_some(), "the rest goes on");
    }
}

#[test]
fn a_tick_for_which_nothing_is_due_writes_nothing() {
    let (scratch, store) = scene();
    let tick =
        || -> i64 { crate::scratch::rows(&format!("SELECT no FROM \"{}\".tick", scratch.0))[0].get(0) };
    let now = SystemClock.now();
    let later = task("t").not_before(now + std::time::Duration::from_secs(1));
    store.write(|tx| tx.enqueue(now, std::slice::from_ref(&later))).unwrap();
    let before = tick();
    let survey = |at| {
        let query = stationmaster::store::contract::SurveyQuery::new().promote(at, 9);
        store.write(|tx| Ok(raw(tx).survey(&query)?)).unwrap().promoted
    };
    assert_eq!((survey(now), tick()), (0, before + 1), "it folds what was enqueued");
    assert_eq!((survey(now), tick()), (0, before + 1), "and then there is nothing");
    assert_eq!((survey(now + std::time::Duration::from_secs(2)), tick()), (1, before + 2));
}

#[test]
fn a_tick_is_refused_and_the_transaction_goes_on() {
    let (scratch, store) = scene();
    let schema = scratch.0.clone();
    with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        let body = |tx: &mut Tx<'_>| {
            let (now, lease) = (Timestamp::from_micros(1), std::time::Duration::from_secs(9));
            let order = AdmitRequest::new("h".try_into()?, "tick".try_into()?, 1, lease);
            let refused = tx.admit(now, &order).unwrap_err();
            assert!(matches!(refused, Error::Invalid(Invalid::TickInHostTransaction)), "{refused}");
            assert!(
                refused.to_string().contains("admit with an Admitter, or in the store's own `write`"),
                "{refused}"
            );
            tx.define([pool("p", 1)], IfExists::Replace)
        };
        postgres::tx(&transaction, &schema, body).await.unwrap();
        transaction.commit().await.unwrap();
    });
    assert_eq!(pools(&store), 1);
}

#[test]
fn without_a_transaction_nothing_is_done() {
    let (scratch, store) = scene();
    let schema = scratch.0.clone();
    let refused = with_client(move |client| async move {
        postgres::tx(&client, &schema, |tx| tx.define([pool("p", 1)], IfExists::Replace)).await.unwrap_err()
    });
    assert_eq!(kind(&refused), StoreErrorKind::Backend);
    assert_eq!(pools(&store), 0);
}

#[test]
fn errors_and_panics_of_the_body_come_back() {
    let (scratch, _store) = scene();
    let schema = scratch.0.clone();
    with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        let answer: Result<()> =
            postgres::tx(&transaction, &schema, |_| Err(Error::abort("on purpose"))).await;
        assert!(matches!(answer, Err(Error::Aborted(_))));
        transaction.rollback().await.unwrap();
    });
    let schema = scratch.0.clone();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        with_client(move |mut client: Client| async move {
            let transaction = client.transaction().await.unwrap();
            let body = |_: &mut Tx<'_>| -> Result<()> { std::panic::resume_unwind(Box::new("on purpose")) };
            postgres::tx(&transaction, &schema, body).await.unwrap();
        });
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
}

#[test]
fn an_error_that_the_body_passes_over_is_answered_all_the_same() {
    let (scratch, _store) = scene();
    let schema = scratch.0.clone();
    let refused = with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        transaction
            .batch_execute(&format!("ALTER TABLE \"{schema}\".pool DROP COLUMN description"))
            .await
            .unwrap();
        let answer = postgres::tx(&transaction, &schema, |tx| {
            assert!(tx.all_pools().is_err());
            assert!(tx.define([pool("q", 1)], IfExists::Replace).is_err(), "what follows is refused");
            Ok(())
        });
        let answer = answer.await;
        transaction.rollback().await.unwrap();
        answer
    });
    assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Backend);
}

#[test]
fn a_future_that_is_dropped_ends_the_body_with_an_error() {
    let (scratch, store) = scene();
    let schema = scratch.0.clone();
    let (tell, told) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        let body = move |tx: &mut Tx<'_>| {
            tx.define([pool("p", 1)], IfExists::Replace)?;
            tell.send(None).unwrap();
            wait.recv().unwrap();
            tell.send(Some(tx.all_pools().map(|_| ()))).unwrap();
            Ok(())
        };
        {
            let mut future = Box::pin(postgres::tx(&transaction, &schema, body));
            let step = std::time::Duration::from_millis(10);
            while tokio::time::timeout(step, &mut future).await.is_err() && told.try_recv().is_err() {}
        }
        go.send(()).unwrap();
        let ended = tokio::task::spawn_blocking(move || told.recv().unwrap().unwrap()).await.unwrap();
        assert_eq!(kind(&ended.unwrap_err()), StoreErrorKind::Backend);
        transaction.rollback().await.unwrap();
    });
    assert_eq!(pools(&store), 0);
}

#[test]
fn a_future_may_move_between_threads_and_a_body_may_have_its_own() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let (scratch, store) = scene();
    let schema = scratch.0.clone();
    with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        is_send(postgres::tx(&transaction, &schema, |tx| tx.define([pool("one", 1)], IfExists::Replace)))
            .await
            .unwrap();
        let (tx, serving) = postgres::attach(&transaction, &schema);
        let body = std::thread::spawn(move || tx.put_pools_and_audit());
        is_send(serving).await;
        body.join().unwrap();
        transaction.commit().await.unwrap();
    });
    assert_eq!(pools(&store), 2);
}

trait PutPoolsAndAudit {
    fn put_pools_and_audit(self);
}

impl PutPoolsAndAudit for postgres::PostgresTx {
    fn put_pools_and_audit(self) {
        let mut tx = self.tx();
        tx.define([pool("two", 1)], IfExists::Replace).unwrap();
        assert_eq!(tx.audit().unwrap(), []);
    }
}

/// A connection of a host's may have been told to take backslashes in strings for escapes, as old programs expect.
#[test]
fn a_host_may_have_strings_with_backslashes() {
    let (scratch, _store) = scene();
    let schema = scratch.0.clone();
    with_client(move |mut client| async move {
        client
            .batch_execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
            .await
            .unwrap();
        let transaction = client.transaction().await.unwrap();
        let found = postgres::tx(&transaction, &schema, |tx| {
            let run = |id: &str, start| {
                RunRecord::open(RunKey::new("n", id).unwrap(), Timestamp::from_micros(start))
            };
            tx.record_runs(&[run("a\\b", 1), run("c", 2)], StopBeforeStart::Reject)?;
            let window = ActiveQuery::new(Timestamp::from_micros(0), Timestamp::from_micros(9));
            tx.enqueue(Timestamp::from_micros(1), &[task("a\\")])?;
            assert!(tx.tasks(&[task("a\\").key])?[0].is_some());
            assert_eq!(tx.count_active_runs(&window)?, 2);
            assert_eq!(tx.active_run_places(&window)?.len(), 2);
            tx.active_runs(&window).map(|mut runs| runs.remove(0).key.id.to_string())
        });
        assert_eq!(found.await.unwrap(), "a\\b");
    });
}
