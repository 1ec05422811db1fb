//! Nothing blocks the runtime: on its only thread a heart beats on while calls wait, and they wait for its beats.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::clock::ManualClock;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{Admitter, LoopHandle, PokeRequest, Poker, Upkeep};
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore, rusqlite::Connection};
use stationmaster::store::{Store, Tx};
use stationmaster::tokio::{AsyncAdmitter, AsyncService, AsyncStore, drive};
use stationmaster::{NewTask, TaskState};
use tokio::runtime::Handle;

use crate::fleet::*;
use crate::scene::{Gate, at, key, patient, secs, state, waits};

/// A call that is made on the runtime's thread would never let the heart beat so often.
const BEATS: usize = 50;

/// Beats so often, then does this.
async fn heart(then: impl FnOnce()) {
    for _ in 0..BEATS {
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    then();
}

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, SqliteOptions::new().busy_timeout(secs(60))).unwrap())
}

/// Another program's transaction, which holds the file's write lock until it is rolled back.
fn write_lock(path: &Path) -> Connection {
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[test]
fn a_call_that_waits_for_the_files_lock_leaves_the_thread_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = AsyncStore::new(open(&path));
    let lock = write_lock(&path);
    let (begun, released) = (AtomicUsize::new(0), AtomicUsize::new(0));
    one_thread().block_on(async {
        let calls = (0..40).map(|n| {
            let (store, begun, released) = (store.clone(), &begun, &released);
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                let inserted = store
                    .write(move |tx| tx.enqueue(at(0), &[NewTask::new(key(&format!("t{n}")))]))
                    .await
                    .unwrap();
                assert_eq!(released.load(Ordering::SeqCst), 1, "not before the heart has beaten so often");
                inserted.len()
            }
        });
        let calls: Vec<_> = calls.map(Box::pin).collect();
        let all = async {
            let mut done = 0;
            for call in join_all(calls).await {
                done += call;
            }
            done
        };
        let beats = heart(|| {
            assert_eq!(begun.load(Ordering::SeqCst), 40);
            released.fetch_add(1, Ordering::SeqCst);
            lock.execute_batch("ROLLBACK").unwrap();
        });
        assert_eq!(tokio::join!(all, beats).0, 40);
        assert!(store.read(|tx| tx.audit()).await.unwrap().is_empty());
    });
}

/// Writers that wait for a lock take all places there are, for as long as the lock is held.
#[test]
fn calls_that_read_do_not_wait_for_calls_that_wait_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let (store, lock) = (AsyncStore::new(open(&path)).at_once(places(4)), write_lock(&path));
    one_thread().block_on(async {
        let put = |n: u32| {
            let (store, pool) = (store.clone(), PoolSpec::new(format!("p{n}"), Slots::Limited(n)).unwrap());
            tokio::spawn(async move { store.write(move |tx| tx.define([&pool], IfExists::Replace)).await })
        };
        let writes: Vec<_> = (1..=40).map(put).collect();
        heart(|| ()).await;
        let read = tokio::time::timeout(secs(20), store.read(|tx| tx.all_pools())).await;
        assert_eq!(read.expect("it does not wait for the lock").unwrap().len(), 1);
        lock.execute_batch("ROLLBACK").unwrap();
        for write in writes {
            write.await.unwrap().unwrap();
        }
        assert_eq!(store.read(|tx| tx.all_pools()).await.unwrap().len(), 41);
    });
}

/// The lock is held for good. Ten times as many calls as there are places do not take ten times as long.
#[test]
fn a_call_waits_for_a_place_no_longer_than_the_lock_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = SqliteStore::open(&path, SqliteOptions::new().busy_timeout(secs(1))).unwrap();
    let (store, _lock) = (AsyncStore::new(Arc::new(store)).at_once(places(2)), write_lock(&path));
    let bodies = Arc::new(AtomicUsize::new(0));
    one_thread().block_on(async {
        let write = |_| {
            let (store, bodies) = (store.clone(), bodies.clone());
            tokio::spawn(async move {
                let body = move |_: &mut Tx<'_>| Ok(bodies.fetch_add(1, Ordering::SeqCst));
                store.write(body).await.unwrap_err()
            })
        };
        let writes: Vec<_> = (0..40).map(write).collect();
        let all = async {
            for write in writes {
                let refused = write.await.unwrap();
                assert!(refused.is_retryable(), "{refused}");
            }
        };
        // A place, the connection and the file's lock: each is waited for a second at most.
        tokio::time::timeout(secs(10), all).await.expect("each call ended in time");
    });
    assert_eq!(bodies.load(Ordering::SeqCst), 0);
}

/// Polls all futures by one task.
async fn join_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut answers = Vec::new();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| match std::pin::Pin::new(future).poll(context) {
            std::task::Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            std::task::Poll::Pending => true,
        });
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers
}

#[test]
fn services_that_wait_for_the_files_lock_leave_the_thread_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = open(&path);
    sense_targets(&store, "kind", 3, waits(10, 1_000));
    store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key("ready"))])).unwrap();
    let lock = write_lock(&path);
    one_thread().block_on(async {
        let (clock, handle) = (ManualClock::new(at(1)), LoopHandle::new());
        let poke = |_: PokeRequest| async { PokeOutcome::Landed(None) };
        let poker: Poker = patient(&store).kind_async("kind".try_into().unwrap(), &Handle::current(), poke);
        let mut poker = AsyncService::new(poker);
        let mut upkeep = AsyncService::new(Upkeep::new(store.clone()).grace(Duration::ZERO));
        let name = "worker".try_into().unwrap();
        let mut admitter = AsyncAdmitter::new(Admitter::new(store.clone(), name));
        let released = AtomicUsize::new(0);
        let hour = secs(3_600);
        let once = |told: usize| {
            assert_eq!(released.load(Ordering::SeqCst), 1);
            if told == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let (admitted, reaped, poked, ()) = tokio::join!(
            drive(&mut admitter, &clock, &handle, hour, |admission| once(admission.unwrap().granted.len())),
            drive(&mut upkeep, &clock, &handle, hour, |report| once(1 + report.unwrap().reaped.len())),
            drive(&mut poker, &clock, &handle, hour, |report| once(report.unwrap().landed)),
            heart(|| {
                released.fetch_add(1, Ordering::SeqCst);
                lock.execute_batch("ROLLBACK").unwrap();
            }),
        );
        assert!(admitted.is_ok() && reaped.is_ok() && poked.is_ok());
    });
    assert_eq!((state(&store, "kind-0"), state(&store, "ready")), (TaskState::Success, TaskState::Queued));
}

#[test]
fn pokes_that_block_and_the_end_of_their_poker_leave_the_thread_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("jobs.db"));
    sense_targets(&store, "blocking", 3, waits(10, 1_000));
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let runtime = one_thread();
    runtime.block_on(async {
        let poke = move |_: &PokeRequest| {
            held.pass();
            PokeOutcome::Landed(None)
        };
        let poker = patient(&store).kind("blocking".try_into().unwrap(), poke);
        let mut poker = AsyncService::new(poker);
        let (ticked, ()) = tokio::join!(poker.tick(at(0)), heart(|| gate.open()));
        assert_eq!(ticked.unwrap().landed, 3);
        // The next poker has its name.
        poker.with(|poker| poker.leave()).await.unwrap().unwrap();
    });

    sense_targets(&store, "again", 3, waits(10, 1_000));
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    runtime.block_on(async {
        let poke = move |_: &PokeRequest| {
            held.pass();
            PokeOutcome::NotYet
        };
        let poker = patient(&store).wait_for_answers(std::time::Duration::from_millis(1));
        let mut poker = AsyncService::new(poker.kind("again".try_into().unwrap(), poke));
        while poker.tick(at(1)).await.unwrap().in_flight < 3 {}
        drop(poker);
        heart(|| gate.open()).await;
    });
    // Waits for what is left on the blocking threads: the end of the poker.
    drop(runtime);
}
