//! A host of plain threads: each service on a thread of the host's own, workers beside them, and a clean stop.
//!
//! Nobody polls: the loops sleep until something is due or they are woken. `WakingStore` wakes those for whom a task that was
//! enqueued, ended or registered as a sensor may be news; `LoopHandle::stop` wakes them all for good.
//!
//! A keeper renews the leases of all workers. What it finds lost is another's to work on, and its worker
//! stops. A store that is busy for a while ends no attempt: keeper and workers ask again.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::admission::IfExists;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::kinds::{Condition, TimeReached, builtin};
use stationmaster::service::{Admitter, Kept, LoopHandle, Poker};
use stationmaster::service::{Reaper, Service, WakingStore, drive};
use stationmaster::store::{MemoryStore, Store, Tx};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState};

const WORKERS: u32 = 4;
const LEASE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(1); // until what failed is tried again
const HOUR: Duration = Duration::from_secs(3_600); // seconds, if other processes enqueue: they wake no loop here

fn main() -> Result<()> {
    // The loops of admitter and poker, woken by the store; and those of reaper and keeper.
    let (news, rest) = (LoopHandle::new(), LoopHandle::new());
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), news.clone()));
    let mut admitter = Admitter::new(store.clone(), "host-1".try_into()?).lease(LEASE);
    let keeper = admitter.keeper();
    let mut reaper = Reaper::new(store.clone());
    let poker = Poker::new(store.clone(), "host-1".try_into()?);
    let mut poker = builtin(poker, store.clone())?;
    let key = |n| TaskKey::new("prod", "nightly", "r1", format!("task-{n:02}"));
    let keys: Vec<TaskKey> = (0..20).map(key).collect::<Result<_, _>>()?;
    let tasks: Vec<NewTask> = keys.iter().cloned().map(NewTask::new).collect();
    store.write(|tx| {
        tx.define([PoolSpec::new("default_pool", Slots::Limited(WORKERS))?], IfExists::Replace)?;
        tx.enqueue(SystemClock.now(), &tasks)
    })?;

    let (sender, granted) = mpsc::channel();
    let granted = Mutex::new(granted);
    let ended = scope(|threads| {
        let (news, rest, store) = (&news, &rest, &*store);
        let mut keeping = keeper.clone();
        threads.spawn(move || {
            // The leases hold for a while yet: an error need not be the last word.
            tend(&mut keeping, rest, HOUR, |kept| told("keeper", kept.error.map_or(Ok(()), Err)));
        });
        // The channel closes when the admitter's loop ends, and then the workers end.
        threads.spawn(move || {
            tend(&mut admitter, news, HOUR, |admission| {
                for task in admission.granted {
                    drop(sender.send((keeper.keep(&task), task)));
                }
            });
        });
        threads.spawn(|| tend(&mut poker, news, HOUR, drop));
        // What is granted while the reaper sleeps expires a lease later at the earliest.
        threads.spawn(|| tend(&mut reaper, rest, LEASE, drop));
        for _ in 0..WORKERS {
            let next = || granted.lock().recv().ok();
            threads.spawn(move || {
                while let Some((kept, task)) = next() {
                    told("attempt", attempt(store, &kept, &task));
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

/// Every fourth task waits for an instant, without thread or slot; the others work. A stale lease ends the
/// attempt as an error.
pub(crate) fn attempt(store: &dyn Store, kept: &Kept, task: &TaskRecord) -> Result<()> {
    let (lease, now) = (task.lease_ref(), SystemClock.now());
    write(store, kept, |tx| tx.start(now, &[lease])?.fenced())?;
    if task.id.0 % 4 != 0 {
        for _step in 0..4 {
            if kept.is_lost() {
                eprintln!("{}: its lease was lost, and the work with it", task.key);
                return Ok(());
            }
            sleep(Duration::from_millis(5)); // in truth, something useful
        }
        return write(store, kept, |tx| tx.finish(SystemClock.now(), &[Finish::success(lease)])?.fenced())
            .map(drop);
    }
    let instant = TimeReached::new(now + Duration::from_millis(300));
    let sensor = instant.sensor(lease, Settings::new(Duration::from_secs(1), HOUR)?)?;
    write(store, kept, |tx| tx.register(now, std::slice::from_ref(&sensor))?.fenced()).map(drop)
}

/// Writes, again while the store is busy, for as long as the lease holds.
fn write<T>(store: &dyn Store, kept: &Kept, mut body: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
    loop {
        match store.write(&mut body) {
            Err(error) if error.is_retryable() && kept.holds(SystemClock.now()) => sleep(SOON),
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
