//! stationmaster at commit e453f86, by its interface of then: a pool, and batches in three transactions.

#[path = "../../shared/program.rs"]
mod program;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use program::{DONE, ERRORS, number};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::lifecycle::{Finish, enqueue, finish, start};
use stationmaster::service::{Admitter, AdmitterOptions, LoopHandle};
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::store::{PostgresStore, StoreExt};
use stationmaster::{NewTask, TaskKey};

const BATCH: usize = 16;

fn open() -> PostgresStore {
    PostgresStore::connect(&program::url(), PostgresOptions::new()).expect("a store")
}

fn task(n: usize) -> NewTask {
    let key = TaskKey::new("peers", "nothing", "run", format!("fill-{n}")).expect("a key");
    NewTask::new(key).pool("work".try_into().expect("a name")).payload(format!("{{\"n\":{n}}}"))
}

/// Repeats a call until it works, as a host does after `Busy`.
fn insist<T>(mut call: impl FnMut() -> stationmaster::Result<T>) -> T {
    loop {
        match call() {
            Ok(result) => return result,
            Err(error) if ERRORS.fetch_add(1, Relaxed) < 3 => eprintln!("before: {error}"),
            Err(_) => {}
        }
    }
}

fn work() {
    let store = Arc::new(open());
    let idle = LoopHandle::new();
    let woken = idle.clone();
    let callback = move |change: stationmaster::store::postgres::Change| {
        if change.tasks() {
            woken.wake();
        }
    };
    let _listening = store.on_change(callback).expect("the server listens");
    let name = format!("worker-{}", std::process::id());
    let options = AdmitterOptions::default().lease(Duration::from_secs(60));
    let holder = name.as_str().try_into().expect("a name");
    let mut admitter = Admitter::new(store.clone(), holder, options).expect("an admitter");
    program::gate();
    loop {
        let seen = idle.seen();
        let granted = insist(|| admitter.admit(SystemClock.now(), BATCH)).granted;
        if granted.is_empty() {
            idle.wait_since(seen, Duration::from_millis(100));
            continue;
        }
        let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
        let ends: Vec<_> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        insist(|| store.write(|tx| start(tx, SystemClock.now(), &leases)));
        insist(|| store.write(|tx| finish(tx, SystemClock.now(), &ends)));
        DONE.fetch_add(ends.len() as u64, Relaxed);
    }
}

fn main() {
    let arguments = program::arguments();
    match arguments[0].as_str() {
        "setup" => {
            let slots = arguments[1].parse().map_or(Slots::Unlimited, Slots::Limited);
            let pool = PoolSpec::new("work", slots).expect("a pool");
            insist(|| {
                open().write(|tx| {
                    tx.put_pools(std::slice::from_ref(&pool))?;
                    Ok(())
                })
            });
        }
        "fill" => {
            let (store, count) = (open(), number(&arguments, 1));
            for from in (0..count).step_by(1_000) {
                let tasks: Vec<_> = (from..count.min(from + 1_000)).map(task).collect();
                insist(|| store.write(|tx| enqueue(tx, SystemClock.now(), &tasks)));
            }
        }
        "work" => work(),
        other => panic!("no command {other}"),
    }
}
