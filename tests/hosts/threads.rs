//! A host with threads of its own, which share a count behind a lock of its own `parking_lot` and a pool of ours.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::admission::IfExists;
use stationmaster::ops::{AdmitRequest, Fenced, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::MemoryStore;
use stationmaster::{NewTask, TaskKey, Timestamp};

const THREADS: usize = 4;
const TASKS: usize = 200;

pub fn main() {
    let (store, now) = (Arc::new(MemoryStore::new()), Timestamp::UNIX_EPOCH);
    let tasks: Vec<NewTask> = (0..TASKS)
        .map(|n| NewTask::new(TaskKey::new("n", "w", "r", n.to_string()).expect("a key")))
        .collect();
    store
        .write(|tx| tx.define([PoolSpec::new("default_pool", Slots::Limited(3))?], IfExists::Replace))
        .expect("a pool");
    store.write(|tx| tx.enqueue(now, &tasks)).expect("tasks");

    let done = Arc::new(Mutex::new(0));
    std::thread::scope(|scope| {
        for name in 0..THREADS {
            let (store, done) = (store.clone(), done.clone());
            scope.spawn(move || {
                for tick in 0.. {
                    if *done.lock() == TASKS {
                        return;
                    }
                    let (holder, request) = (format!("thread {name}"), format!("tick {name} {tick}"));
                    let order = AdmitRequest::new(
                        holder.as_str().try_into().expect("a name"),
                        request.as_str().try_into().expect("a name"),
                        1,
                        Duration::from_secs(60),
                    );
                    let granted = store.write(|tx| tx.admit(now, &order)).expect("a tick").granted;
                    let ends: Vec<Finish> =
                        granted.iter().map(|task| Finish::success(task.lease_ref())).collect();
                    store.write(|tx| tx.finish(now, &ends)?.fenced()).expect("an end");
                    *done.lock() += granted.len();
                }
            });
        }
    });
    store
        .read(|tx| {
            assert_eq!(tx.audit()?, []);
            assert!(tx.all_pools()?.iter().all(|pool| pool.used == 0));
            Ok(())
        })
        .expect("an audit");
    println!("{THREADS} threads finished {TASKS} tasks");
}
