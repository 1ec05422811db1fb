//! A host of plain threads: each service on a thread of the host's own, workers beside them, and a clean stop.
//!
//! Nobody polls: the loops sleep until something is due or they are woken. `WakingStore` wakes those for whom a task that was
//! enqueued, ended or registered as a sensor may be news; `LoopHandle::stop` wakes them all for good.
//!
//! A heartbeat renews the leases of all workers. What it finds lost is another's to work on, and its worker
//! stops. A store that is busy for a while ends no attempt: heartbeat and workers ask again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::kinds::{Condition, TimeReached, builtin};
use stationmaster::service::{Admitter, LoopHandle, Poker};
use stationmaster::service::{Reaper, Service, WakingStore, drive};
use stationmaster::store::{MemoryStore, Store, Tx};
use stationmaster::{LeaseRef, NewTask, Result, TaskKey, TaskRecord, TaskState};

const WORKERS: u32 = 4;
const LEASE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(1); // until what failed is tried again
const HOUR: Duration = Duration::from_secs(3_600); // seconds, if other processes enqueue: they wake no loop here

fn main() -> Result<()> {
    // The loops of admitter and poker, woken by the store; and those of reaper and heartbeat.
    let (news, rest) = (LoopHandle::new(), LoopHandle::new());
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), news.clone()));
    let mut admitter = Admitter::new(store.clone(), "host-1".try_into()?).lease(LEASE);
    let mut reaper = Reaper::new(store.clone());
    let poker = Poker::new(store.clone(), "host-1".try_into()?);
    let mut poker = builtin(poker, store.clone())?;
    let key = |n| TaskKey::new("prod", "nightly", "r1", format!("task-{n:02}"));
    let keys: Vec<TaskKey> = (0..20).map(key).collect::<Result<_, _>>()?;
    let tasks: Vec<NewTask> = keys.iter().cloned().map(NewTask::new).collect();
    store.write(|tx| {
        tx.put_pools(&[PoolSpec::new("default_pool", Slots::Limited(WORKERS))?])?;
        tx.enqueue(SystemClock.now(), &tasks)
    })?;

    // The leases that are renewed. One that is not there any more was lost.
    let held = Held::default();
    let (sender, granted) = mpsc::channel();
    let granted = Mutex::new(granted);
    let ended = scope(|threads| {
        let (news, rest, store, held) = (&news, &rest, &*store, &held);
        // The channel closes when the admitter's loop ends, and then the workers end.
        threads.spawn(move || {
            tend(&mut admitter, news, HOUR, |admission| {
                held.lock().extend(admission.granted.iter().map(TaskRecord::lease_ref));
                admission.granted.into_iter().for_each(|task| drop(sender.send(task)));
            });
        });
        threads.spawn(|| tend(&mut poker, news, HOUR, drop));
        // What is granted while the reaper sleeps expires a lease later at the earliest.
        threads.spawn(|| tend(&mut reaper, rest, LEASE, drop));
        threads.spawn(|| {
            while !rest.is_stopped() {
                rest.wait(match heartbeat(store, held) {
                    Ok(()) => LEASE / 3,
                    // The leases hold for a while yet: it need not be the last word.
                    Err(error) => {
                        eprintln!("heartbeat: {error}");
                        SOON
                    }
                });
            }
        });
        for _ in 0..WORKERS {
            let next = || granted.lock().recv().ok();
            threads.spawn(move || {
                while let Some(task) = next() {
                    told("attempt", attempt(store, held, &task));
                    held.lock().remove(&task.lease_ref());
                }
            });
        }
        // What wakes the admitter wakes this thread, too.
        let is_over = |task: &TaskRecord| task.state.is_end();
        let ended = loop {
            let seen = news.seen();
            match store.read(|tx| tx.tasks(&keys)) {
                Ok(found) if !found.iter().flatten().all(is_over) => news.wait_since(seen, HOUR),
                other => break other,
            }
        };
        [news, rest].into_iter().for_each(LoopHandle::stop);
        ended
    })?;

    let pools = store.read(|tx| tx.all_pools())?;
    assert!(ended.iter().flatten().all(|task| task.state == TaskState::Success));
    assert!(pools.iter().all(|pool| pool.used == 0));
    println!("{} tasks ended, and so have all threads", keys.len());
    Ok(())
}

pub(crate) type Held = Mutex<BTreeSet<LeaseRef>>;

/// Renews the leases that are held, and drops those that were lost.
pub(crate) fn heartbeat(store: &dyn Store, held: &Held) -> Result<()> {
    let leases: Vec<LeaseRef> = held.lock().iter().copied().collect();
    let renewed = store.write(|tx| tx.renew(SystemClock.now(), LEASE, &leases))?;
    let mut held = held.lock();
    for (lease, _) in leases.iter().zip(renewed).filter(|(_, renewal)| renewal.is_lost()) {
        held.remove(lease);
    }
    Ok(())
}

/// Every fourth task waits for an instant, without thread or slot; the others work. A stale lease ends the
/// attempt as an error.
pub(crate) fn attempt(store: &dyn Store, held: &Held, task: &TaskRecord) -> Result<()> {
    let (lease, now) = (task.lease_ref(), SystemClock.now());
    write(store, |tx| tx.start(now, &[lease])?.fenced())?;
    if task.id.0 % 4 != 0 {
        for _step in 0..4 {
            if !held.lock().contains(&lease) {
                eprintln!("{}: its lease was lost, and the work with it", task.key);
                return Ok(());
            }
            sleep(Duration::from_millis(5)); // in truth, something useful
        }
        return write(store, |tx| tx.finish(SystemClock.now(), &[Finish::success(lease)])?.fenced())
            .map(drop);
    }
    let instant = TimeReached::new(now + Duration::from_millis(300));
    let sensor = instant.sensor(lease, Settings::new(Duration::from_secs(1), HOUR)?)?;
    write(store, |tx| tx.register(now, std::slice::from_ref(&sensor))?.fenced()).map(drop)
}

/// Writes, again while the store is busy: for as long as a lease holds that is not renewed.
fn write<T>(store: &dyn Store, mut body: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match store.write(&mut body) {
            Err(error) if error.is_retryable() && began.elapsed() < LEASE => sleep(SOON),
            answer => return answer,
        }
    }
}

/// A service's loop: after an error the next tick tries again.
fn tend<S: Service>(service: &mut S, handle: &LoopHandle, most: Duration, mut take: impl FnMut(S::Report)) {
    drive(service, &SystemClock, handle, most, |report| {
        told("tick", report.map(&mut take));
        ControlFlow::Continue(())
    });
}

fn told<T>(what: &str, result: Result<T>) {
    if let Err(error) = result {
        eprintln!("{what}: {error}");
    }
}
