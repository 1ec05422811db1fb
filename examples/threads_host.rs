//! A host of plain threads: each service on a thread of the host's own, workers beside them, and a clean stop.
//!
//! Nobody polls: the loops sleep until something is due or they are woken. `WakingStore` wakes those for whom a task that was
//! enqueued, ended or registered as a sensor may be news; `LoopHandle::stop` wakes them all for good.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::kinds::{Condition, TimeReached, time_reached};
use stationmaster::service::lifecycle::{Finish, enqueue, finish, register, renew, start};
use stationmaster::service::{Admitter, AdmitterOptions, LoopHandle, Poker, PokerOptions};
use stationmaster::service::{Reaper, ReaperOptions, Service, WakingStore, run_blocking};
use stationmaster::store::{MemoryStore, Store, StoreExt};
use stationmaster::{LeaseRef, NewTask, Result, TaskKey, TaskRecord, TaskState, time};

const WORKERS: u32 = 4;
const LEASE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3_600); // seconds, if other processes enqueue: they wake no loop here

fn main() -> Result<()> {
    // The loops of admitter and poker, woken by the store; and those of reaper and heartbeat.
    let (news, rest) = (LoopHandle::new(), LoopHandle::new());
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), news.clone()));
    let options = AdmitterOptions::default().lease(LEASE);
    let mut admitter = Admitter::new(store.clone(), "host-1".try_into()?, options)?;
    let mut reaper = Reaper::new(store.clone(), ReaperOptions::default());
    let poker = Poker::new(store.clone(), "host-1".try_into()?, PokerOptions::default())?;
    let mut poker = poker.kind(TimeReached::kind()?, time_reached);
    let key = |n| TaskKey::new("prod", "nightly", "r1", format!("task-{n:02}"));
    let keys: Vec<TaskKey> = (0..20).map(key).collect::<Result<_, _>>()?;
    let tasks: Vec<NewTask> = keys.iter().cloned().map(NewTask::new).collect();
    store.write(|tx| {
        tx.put_pools(&[PoolSpec::new("default_pool", Slots::Limited(WORKERS))?])?;
        enqueue(tx, SystemClock.now(), &tasks)
    })?;

    let held = Mutex::new(BTreeSet::<LeaseRef>::new());
    let (sender, granted) = mpsc::channel();
    let granted = Mutex::new(granted);
    let ended = scope(|threads| {
        let (news, rest, store, held) = (&news, &rest, &*store, &held);
        // The channel closes when the admitter's loop ends, and then the workers end.
        threads.spawn(move || {
            drive(&mut admitter, news, HOUR, |admission| {
                held.lock().extend(admission.granted.iter().map(TaskRecord::lease_ref));
                admission.granted.into_iter().for_each(|task| drop(sender.send(task)));
            });
        });
        threads.spawn(|| drive(&mut poker, news, HOUR, drop));
        // What is granted while the reaper sleeps expires a lease later at the earliest.
        threads.spawn(|| drive(&mut reaper, rest, LEASE, drop));
        threads.spawn(|| {
            while !rest.is_stopped() {
                let leases: Vec<LeaseRef> = held.lock().iter().copied().collect();
                told("heartbeat", store.write(|tx| renew(tx, SystemClock.now(), LEASE, &leases)));
                rest.wait(LEASE / 3);
            }
        });
        for _ in 0..WORKERS {
            let next = || granted.lock().recv().ok();
            threads.spawn(move || {
                while let Some(task) = next() {
                    told("attempt", attempt(store, &task));
                    held.lock().remove(&task.lease_ref());
                }
            });
        }
        // What wakes the admitter wakes this thread, too.
        let is_over = |task: &TaskRecord| task.state.is_end();
        let ended = loop {
            let seen = news.seen();
            match store.read(|tx| Ok(tx.tasks(&keys)?)) {
                Ok(found) if !found.iter().flatten().all(is_over) => news.wait_since(seen, HOUR),
                other => break other,
            }
        };
        [news, rest].into_iter().for_each(LoopHandle::stop);
        ended
    })?;

    let pools = store.read(|tx| Ok(tx.all_pools()?))?;
    assert!(ended.iter().flatten().all(|task| task.state == TaskState::Success));
    assert!(pools.iter().all(|pool| pool.used == 0));
    println!("{} tasks ended, and so have all threads", keys.len());
    Ok(())
}

/// Every fourth task waits for an instant, without thread or slot; the others work.
fn attempt(store: &dyn Store, task: &TaskRecord) -> Result<()> {
    let (lease, now) = (task.lease_ref(), SystemClock.now());
    store.write(|tx| start(tx, now, &[lease]))?;
    if task.no.0 % 4 != 0 {
        sleep(Duration::from_millis(20));
        return store.write(|tx| finish(tx, SystemClock.now(), &[Finish::success(lease)])).map(drop);
    }
    let instant = TimeReached::new(time::add(now, Duration::from_millis(300)));
    let sensor = instant.sensor(lease, Settings::new(Duration::from_secs(1), HOUR)?)?;
    store.write(|tx| register(tx, now, std::slice::from_ref(&sensor))).map(drop)
}

/// A service's loop: after an error the next tick tries again.
fn drive<S: Service>(service: &mut S, handle: &LoopHandle, most: Duration, mut take: impl FnMut(S::Report)) {
    run_blocking(service, &SystemClock, handle, most, |report| {
        told("tick", report.map(&mut take));
        ControlFlow::Continue(())
    });
}

fn told<T>(what: &str, result: Result<T>) {
    if let Err(error) = result {
        eprintln!("{what}: {error}");
    }
}
