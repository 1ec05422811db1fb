//! Several threads on one store.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Case;
use super::steps::Steps;
use super::world::{World, at, holder, key, pool, rows, sized, task};
use crate::error::{Error, Result, StoreError, StoreErrorKind};
use crate::lease::LeaseRef;
use crate::store::Store;
use crate::store::contract::{GrantBatch, Move, StoreTx};
use crate::task::TaskState;
use crate::testing::RawStoreExt;

cases!("threads":
    no_change_is_lost,
    capacity_is_never_exceeded,
    a_task_is_granted_to_one,
    a_key_is_inserted_once,
    the_last_of_those_that_take_turns_sees_all_others,
);

const THREADS: usize = 4;

/// Whether another thread was in the way. A store that cannot be used at all fails the test instead.
fn is_contended(error: &Error) -> bool {
    matches!(error, Error::Store(error) if matches!(error.kind(), StoreErrorKind::Busy | StoreErrorKind::Conflict))
}

/// Calls again and again while other threads are in the way.
fn insist<T>(store: &dyn Store, mut body: impl FnMut(&mut dyn StoreTx) -> Result<T>) -> T {
    loop {
        match store.write_raw(&mut body) {
            Err(error) if is_contended(&error) => thread::yield_now(),
            other => return other.expect("a write transaction"),
        }
    }
}

/// Runs the same in every thread; returns their results.
fn everywhere<T: Send>(body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let body = &body;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || body(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

/// Reads, decides, writes: one after the other adds up. Where several write at a time, they say so first.
fn no_change_is_lost(store: &dyn Store) {
    World(store).write(|tx| tx.put_pools(&[sized("count", 0)]));
    everywhere(|_| {
        for _ in 0..8 {
            insist(store, |tx| {
                tx.serialize(&["count"])?;
                let seen = tx.pools(&[pool("count")])?.remove(0).unwrap().spec.slots.total().unwrap();
                tx.put_pools(&[sized("count", seen + 1)]).map_err(Into::into)
            });
        }
    });
    let counted = World(store).read(|tx| tx.pools(&[pool("count")])).remove(0).unwrap().spec;
    assert_eq!(counted, sized("count", 8 * THREADS as u32));
}

fn capacity_is_never_exceeded(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 5)]));
    let names: Vec<String> = (0..5 * THREADS).map(|n| n.to_string()).collect();
    let ids = world.insert(&names.iter().map(|name| task(name).pool(pool("db"))).collect::<Vec<_>>());
    let taken = everywhere(|thread| {
        let holder = holder(&thread.to_string());
        let mine = ids.iter().skip(thread).step_by(THREADS);
        mine.filter(|id| {
            let batch = GrantBatch::new(std::slice::from_ref(*id), &holder, at(1), at(2));
            loop {
                let mut is_full = false;
                let granted = store.write_raw(|tx| {
                    is_full = !tx.grant_if_open(&batch)?.is_whole(&batch);
                    if is_full { Err(StoreError::conflict("no room").into()) } else { Ok(()) }
                });
                match granted {
                    Err(error) if is_contended(&error) && !is_full => thread::yield_now(),
                    granted => return granted.is_ok(),
                }
            }
        })
        .count()
    });
    assert_eq!((taken.iter().sum::<usize>(), world.used(&pool("db"))), (5, 5));
}

fn a_task_is_granted_to_one(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let ids = world.plain(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let granted = everywhere(|thread| {
        let holder = holder(&thread.to_string());
        let mut mine = 0;
        for chunk in ids.chunks(3) {
            mine +=
                insist(store, |tx| tx.grant_if_ready(chunk, &holder, at(1), at(2)).map_err(Into::into)).len();
        }
        mine
    });
    assert_eq!(granted.iter().sum::<usize>(), 20);
    assert!(ids.iter().all(|id| world.task(*id).epoch == 1));
}

fn a_key_is_inserted_once(store: &dyn Store) {
    let inserted = everywhere(|_| insist(store, |raw| Ok(raw.insert_tasks_if_absent(&rows(&[task("a")]))?)));
    let new = inserted.iter().flatten().filter(|answer| matches!(answer, crate::store::Inserted::New(_)));
    assert_eq!(new.count(), 1);
    assert_eq!(World(store).ready(), 1);
}

/// Fan-in: each ends its own task, and the one that finds all of them ended inserts the successor. Exactly
/// one does.
fn the_last_of_those_that_take_turns_sees_all_others(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..THREADS).map(|n| n.to_string()).collect();
    let ids = world.plain(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let saw_all = everywhere(|thread| {
        insist(store, |tx| {
            tx.serialize(&["another run", "run"])?;
            let end = Move::new(LeaseRef::new(ids[thread], 0), TaskState::Scheduled, TaskState::Success);
            assert_eq!(tx.move_if(&[end])?, [true]);
            let ended = tx.tasks_by_id(&ids)?.into_iter().flatten().filter(|task| task.state.is_end());
            let all = ended.count() == THREADS;
            if all {
                tx.insert_tasks_if_absent(&rows(&[task("next")]))?;
            }
            Ok(all)
        })
    });
    assert_eq!(saw_all.into_iter().filter(|all| *all).count(), 1);
    assert_eq!(world.ready(), 1, "the successor is there");
}

pub(super) fn beside_a_writer() -> Vec<Case> {
    vec![Case { name: "threads::a_reader_goes_on_beside_a_writer", run: a_reader_goes_on_beside_a_writer }]
}

fn a_reader_goes_on_beside_a_writer(store: &dyn Store) {
    let world = World(store);
    let seen = || world.read(|tx| tx.tasks(&[key("a")])).remove(0).is_some();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        world.write(|tx| {
            tx.insert_tasks_if_absent(&rows(&[task("a")]))?;
            let sender = sender.clone();
            scope.spawn(move || {
                sender.send(World(store).read(|tx| tx.tasks(&[key("a")])).remove(0).is_some())
            });
            let answer = receiver.recv_timeout(Duration::from_secs(10));
            assert_eq!(answer, Ok(false), "what is not committed is not seen, and nobody waits for it");
            Ok(())
        });
    });
    assert!(seen());
}
