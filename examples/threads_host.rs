//! A host of plain threads: a worker with handlers, a poker and upkeep, each on its own thread, and a clean
//! stop.
//!
//! Nothing polls: the loops sleep until something is due or they are woken. `WakingStore` wakes the loops that may
//! have work after a commit. `LoopHandle::stop` ends them all.
//!
//! Every fourth task waits for an instant. Its handler registers it as a sensor, which takes neither a thread nor a
//! slot.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::scope;
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Outcome};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::kinds::{Condition, TimeReached, builtin};
use stationmaster::service::{Attempt, LoopHandle, Poker, Service, Upkeep, WakingStore, Worker, drive};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState};

const PLACES: u32 = 4;
const LEASE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3_600); // seconds, if other processes enqueue: they wake no loop here

fn main() -> Result<()> {
    // The handle of the worker's and poker's loops, which the store wakes, and the handle of upkeep's loop.
    let (news, rest) = (LoopHandle::new(), LoopHandle::new());
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), news.clone()));
    let worker = Worker::new(store.clone(), "host-1".try_into()?).places(PLACES as usize).lease(LEASE);
    let worker = worker.handler(work).on_error(|error| eprintln!("worker: {error}"));
    let mut poker = builtin(Poker::new(store.clone(), "host-1".try_into()?), store.clone())?;
    let mut upkeep = Upkeep::new(store.clone());
    let key = |n| TaskKey::new("prod", "nightly", "r1", format!("task-{n:02}"));
    let keys: Vec<TaskKey> = (0..20).map(key).collect::<Result<_, _>>()?;
    // A handler's own writes may find the store busy. The attempt then fails, and is retried.
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(5).build()?;
    let tasks: Vec<NewTask> = keys.iter().map(|key| NewTask::new(key.clone()).retry(retry.clone())).collect();
    store.write(|tx| {
        tx.define([PoolSpec::new("default_pool", Slots::Limited(PLACES))?], IfExists::Replace)?;
        tx.enqueue(SystemClock.now(), &tasks)
    })?;

    let ended = scope(|threads| {
        let (news, rest, store) = (&news, &rest, &*store);
        let working = threads.spawn(move || worker.run(news));
        threads.spawn(|| tend(&mut poker, news, HOUR));
        // A lease that is granted while upkeep sleeps lasts at least `LEASE`, so upkeep wakes in time.
        threads.spawn(|| tend(&mut upkeep, rest, LEASE));
        // What wakes the worker also wakes this thread. A worker that cannot continue stops `news`.
        let is_over = |task: &TaskRecord| task.state.is_end();
        let ended = loop {
            let seen = news.seen();
            match store.read(|tx| tx.tasks(&keys)) {
                Ok(found) if !found.iter().flatten().all(is_over) && !news.is_stopped() => {
                    news.wait_since(seen, HOUR);
                }
                other => break other,
            }
        };
        [news, rest].into_iter().for_each(LoopHandle::stop);
        working.join().expect("the worker does not panic")?;
        ended
    })?;

    let pools = store.read(|tx| tx.all_pools())?;
    assert!(ended.iter().flatten().all(|task| task.state == TaskState::Success));
    assert!(pools.iter().all(|pool| pool.used == 0));
    println!("{} tasks ended, and so have all threads", keys.len());
    Ok(())
}

pub(crate) fn work(attempt: &Attempt) -> Result<Outcome> {
    if attempt.task().id.0 % 4 != 0 {
        let is_to_stop = attempt.wait(Duration::from_millis(20)); // your work goes here
        return Ok(if is_to_stop { Outcome::GivenBack } else { ().into() });
    }
    let now = SystemClock.now();
    let instant = TimeReached::new(now + Duration::from_millis(300));
    let sensor = [instant.sensor(attempt.lease(), Settings::new(Duration::from_secs(1), HOUR)?)?];
    attempt.store().write(|tx| tx.register(now, &sensor)?.fenced())?;
    attempt.ended_elsewhere(); // it is a sensor now, and the worker has no part in it
    Ok(().into())
}

/// Runs a service's loop. After an error, the next tick tries again.
fn tend<S: Service>(service: &mut S, handle: &LoopHandle, longest: Duration) {
    drive(service, &SystemClock, handle, longest, |report| {
        report.map_or_else(|error| eprintln!("tick: {error}"), drop);
        ControlFlow::Continue(())
    });
}
