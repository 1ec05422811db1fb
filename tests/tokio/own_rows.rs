//! Attempts that end in a transaction with the host's own rows, on PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{StoreError, StoreErrorKind};
use stationmaster::service::{Attempt, LoopHandle, Worker};
use stationmaster::store::Store;
use stationmaster::store::postgres::tokio_postgres::{Client, NoTls, connect};
use stationmaster::store::postgres::{self, Schema};
use stationmaster::{Error, NewTask, Result, TaskState};

use crate::scene::key;
use crate::stores::scratch::{ScratchStore, query, rows, url};

/// What goes wrong in the first transaction of the task of this name.
const TROUBLES: [(&str, &str); 4] = [
    ("deadlock", "DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '40P01'; END $$"),
    ("lost-before", "SELECT pg_terminate_backend(pg_backend_pid())"),
    ("lost-after", "SELECT 1"),
    ("refused", "INSERT INTO effect VALUES (NULL)"),
];

async fn client(schema: &Schema) -> Result<Client> {
    let (client, connection) = connect(&url(), NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = \"{schema}\"")).await?;
    Ok(client)
}

/// Ends a task beside the host's own row. The first time, the result differs from what really happened.
async fn effect(schema: &Schema, attempt: &Attempt, is_first: bool) -> Result<()> {
    let mut client = client(schema).await?;
    let name = attempt.task().key.task.as_str().to_owned();
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO effect VALUES ($1)", &[&name]).await?;
    if is_first {
        let trouble = TROUBLES.iter().find(|(of, _)| *of == name).unwrap();
        transaction.batch_execute(trouble.1).await?;
    }
    let attempt = attempt.clone();
    postgres::tx(&transaction, schema, move |tx| attempt.end_in(tx, ())).await?;
    transaction.commit().await?;
    if is_first && name == "lost-after" {
        return Err(StoreError::new(StoreErrorKind::Indeterminate, "the response was lost").into());
    }
    Ok(())
}

#[test]
fn an_end_in_a_hosts_transaction_takes_effect_once_and_costs_no_attempt() {
    let scratch = ScratchStore::open(|options| options);
    let schema = scratch.scratch.0.clone();
    query(&format!("CREATE TABLE \"{schema}\".effect (task TEXT NOT NULL)"));
    let store: Arc<dyn Store> = Arc::new(scratch);
    let tasks = TROUBLES.map(|(name, _)| NewTask::new(key(name)));
    store.write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();

    let (runtime, handle) = (tokio::runtime::Runtime::new().unwrap(), LoopHandle::new());
    let tries = Arc::new(AtomicUsize::new(0));
    let (counts, of_host) = (tries.clone(), schema.clone());
    let worker = Worker::new(store.clone(), "worker".try_into().unwrap()).places(4);
    let worker = worker.handler_async(runtime.handle(), move |attempt| {
        let (counts, schema) = (counts.clone(), of_host.clone());
        async move {
            let mut tries = 0;
            let ended = attempt.end_by(|| {
                tries += 1;
                counts.fetch_add(1, Ordering::SeqCst);
                effect(&schema, &attempt, tries == 1)
            });
            ended.await
        }
    });
    let own = handle.clone();
    let running = runtime.spawn(async move { worker.run_async(&own).await });
    let ended = || store.read(|tx| tx.tasks(&TROUBLES.map(|(name, _)| key(name)))).unwrap();
    for _ in 0..6_000 {
        if ended().iter().flatten().all(|task| task.state.is_end()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    handle.stop();
    let report = runtime.block_on(running).unwrap().unwrap();

    let states = ended().into_iter().flatten().map(|task| (task.state, task.attempt)).collect::<Vec<_>>();
    assert_eq!(states[..3], [(TaskState::Success, 1); 3], "repeated until it was known");
    assert_eq!(states[3], (TaskState::Failed, 1), "a constraint would be violated again");
    let counts = (report.ended_elsewhere, report.stored, report.refused);
    assert_eq!((counts, tries.load(Ordering::SeqCst)), ((3, 1, 0), 7));
    let effects = rows(&format!("SELECT task FROM \"{schema}\".effect ORDER BY task"));
    let effects: Vec<String> = effects.iter().map(|row| row.get(0)).collect();
    assert_eq!(effects, ["deadlock", "lost-after", "lost-before"]);
}

/// How the transactions that end the tasks of a run wait for each other.
#[derive(Clone, Copy)]
enum Turns {
    /// Each first updates a row of the run.
    OwnRow,
    Names,
}

/// Ends one of a run's tasks, and enqueues what follows if both have ended. The first transaction stays open until the
/// other one waits for it, or has looked, too.
async fn end_of_run(schema: &Schema, attempt: &Attempt, turns: Turns, looks: &AtomicUsize) -> Result<()> {
    let mut client = client(schema).await?;
    let transaction = client.transaction().await?;
    if let Turns::OwnRow = turns {
        transaction.batch_execute("UPDATE run_of_host SET done = done + 1").await?;
    }
    let attempt = attempt.clone();
    let ended = postgres::tx(&transaction, schema, move |tx| {
        if let Turns::Names = turns {
            attempt.in_turn(&["run"]);
        }
        attempt.end_in(tx, ())?;
        let both = tx.tasks(&[key("left"), key("right")])?;
        if both.iter().flatten().all(|task| task.state == TaskState::Success) {
            tx.enqueue(SystemClock.now(), &[NewTask::new(key("successor"))])?;
        }
        Ok(())
    });
    ended.await?;
    if looks.fetch_add(1, Ordering::SeqCst) == 0 {
        let waits = format!(
            "SELECT FROM pg_stat_activity a, pg_locks l WHERE l.pid = a.pid AND a.wait_event_type = 'Lock'
             AND l.relation IN ('\"{schema}\".run_of_host'::regclass, '\"{schema}\".turn'::regclass)"
        );
        let is_open = || looks.load(Ordering::SeqCst) == 1;
        while is_open() && tokio::task::block_in_place(|| rows(&waits)).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(transaction.commit().await?)
}

#[test]
fn of_two_that_first_update_a_row_of_their_run_the_second_enqueues_what_follows() {
    the_second_enqueues_what_follows(Turns::OwnRow);
}

#[test]
fn of_two_that_end_in_turn_in_the_hosts_transactions_the_second_enqueues_what_follows() {
    the_second_enqueues_what_follows(Turns::Names);
}

fn the_second_enqueues_what_follows(turns: Turns) {
    let scratch = ScratchStore::open(|options| options);
    let schema = scratch.scratch.0.clone();
    query(&format!("CREATE TABLE \"{schema}\".run_of_host AS SELECT 0 AS done"));
    let store: Arc<dyn Store> = Arc::new(scratch);
    let names = ["left", "right", "successor"];
    let tasks = [0, 1].map(|at| NewTask::new(key(names[at])));
    store.write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();
    let (runtime, handle) = (tokio::runtime::Runtime::new().unwrap(), LoopHandle::new());
    let (looks, done) = (Arc::new(AtomicUsize::new(0)), handle.clone());
    let worker = Worker::new(store.clone(), "worker".try_into().unwrap()).places(2);
    let worker = worker.handler_async(runtime.handle(), move |attempt| {
        let (schema, looks, done) = (schema.clone(), looks.clone(), done.clone());
        async move {
            attempt.end_by(|| end_of_run(&schema, &attempt, turns, &looks)).await?;
            if looks.load(Ordering::SeqCst) == 2 {
                done.stop();
            }
            Ok::<_, Error>(())
        }
    });
    let own = handle.clone();
    runtime.block_on(runtime.spawn(async move { worker.run_async(&own).await })).unwrap().unwrap();
    let tasks = store.read(|tx| tx.tasks(&names.map(key))).unwrap();
    let states: Vec<_> = tasks.iter().map(|task| task.as_ref().map(|task| task.state)).collect();
    assert_eq!(states[..2], [Some(TaskState::Success); 2]);
    assert!(states[2].is_some(), "neither has seen the end of the other");
}

/// The server's answers to a host's own statements.
#[test]
fn errors_of_a_hosts_statements_say_whether_to_repeat_the_transaction() {
    let scratch = ScratchStore::open(|options| options);
    let schema = scratch.scratch.0.clone();
    let raise = |code: &str| format!("DO $$ BEGIN RAISE EXCEPTION 'it' USING ERRCODE = '{code}'; END $$");
    let cases = [
        (raise("40001"), StoreErrorKind::Conflict),
        (raise("55P03"), StoreErrorKind::Busy),
        (raise("53100"), StoreErrorKind::Full),
        (raise("57014"), StoreErrorKind::TooMuch),
        (raise("23505"), StoreErrorKind::Backend),
        ("SELECT nothing FROM nowhere".into(), StoreErrorKind::Backend),
        ("SELECT pg_terminate_backend(pg_backend_pid())".into(), StoreErrorKind::Indeterminate),
    ];
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for (sql, kind) in cases {
            let error: Error = client(&schema).await.unwrap().batch_execute(&sql).await.unwrap_err().into();
            assert!(matches!(&error, Error::Store(store) if store.kind() == kind), "{sql}: {error:?}");
        }
        let refused = connect("postgres://postgres@127.0.0.1:1/test", NoTls).await.err().unwrap();
        assert!(
            Error::from(refused).is_indeterminate(),
            "it may be there soon, as a connection that was lost"
        );
        let nowhere = url().replace("/test", "/there-is-no-such-database");
        let refused = Error::from(connect(&nowhere, NoTls).await.err().unwrap());
        assert!(!refused.is_indeterminate() && !refused.is_retryable(), "{refused}");
    });
}
