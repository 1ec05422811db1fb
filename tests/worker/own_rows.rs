//! The host's own rows, in the transaction that ends the task: on a file, by two workers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::service::{Attempt, LoopHandle, WakingStore, Worker};
use stationmaster::store::sqlite::{SqliteTx, rusqlite};
use stationmaster::store::{SqliteStore, Store};

use crate::scene::*;

type Refused = Box<dyn std::error::Error>;

/// Counts in the host's own row that the task is done, and ends it.
fn count(path: &Path, attempt: &Attempt) -> Result<(), Refused> {
    let mut conn = rusqlite::Connection::open(path)?;
    conn.busy_timeout(MINUTE)?;
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    tx.execute("UPDATE done SET times = times + 1 WHERE task = ?1", [attempt.task().key.task.as_str()])?;
    let end = [Finish::success(attempt.lease())];
    SqliteTx::attach(&tx, &Default::default())?.finish(SystemClock.now(), &end)?.fenced()?;
    if attempt.task().attempt == 1 && attempt.task().id.0 % 3 == 0 {
        return Err("the first attempt at every third task is rolled back".into());
    }
    tx.commit()?;
    attempt.ended_elsewhere();
    Ok(())
}

#[test]
fn what_is_written_beside_the_end_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.db");
    let names: Vec<String> = (0..30).map(|n| format!("task-{n}")).collect();
    let retry = RetryPolicy::fixed(Duration::ZERO).max_attempts(2).build().unwrap();
    let handle = LoopHandle::new();
    let open = || SqliteStore::open(&path, Default::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(open(), handle.clone()));
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE done (task TEXT PRIMARY KEY, times INTEGER NOT NULL)").unwrap();
    for name in &names {
        conn.execute("INSERT INTO done VALUES (?1, 0)", [name]).unwrap();
    }
    let tasks: Vec<_> = names.iter().map(|name| task(name).retry(retry.clone())).collect();
    enqueue(&store, &tasks);

    let begun = Arc::new(AtomicUsize::new(0));
    let running = ["one", "other"].map(|holder| {
        let own: Arc<dyn Store> = Arc::new(WakingStore::new(open(), handle.clone()));
        let (path, begun) = (path.clone(), begun.clone());
        let worker =
            Worker::new(own, holder.try_into().unwrap()).places(3).handler(move |attempt: &Attempt| {
                begun.fetch_add(1, Ordering::SeqCst);
                count(&path, attempt)
            });
        run(worker, &handle)
    });
    until("all have ended", || names.iter().all(|name| state(&store, name).is_end()));
    let [one, other] = running.map(Run::stop);
    let times: Vec<i64> = names
        .iter()
        .map(|name| {
            conn.query_row("SELECT times FROM done WHERE task = ?1", [name], |row| row.get(0)).unwrap()
        })
        .collect();
    assert_eq!(times, vec![1; 30]);
    assert_eq!(begun.load(Ordering::SeqCst), 40, "ten of them twice");
    assert_eq!(one.stored + other.stored, 10, "the worker stores what the host did not");
    assert_eq!(one.ended_elsewhere + other.ended_elsewhere, 30);
    assert_eq!(one.refused + other.refused, 0);
    assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
}
