//! What a process does: a worker whose handlers misbehave as the names of their tasks say.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::Outcome;
use stationmaster::service::{Attempt, Cancelled, LoopHandle, Worker};
use stationmaster::store::Tx;
use stationmaster::{Error, NewTask, TaskRecord};
use tokio::runtime::{Builder, Runtime};

use crate::Orders;
use crate::effects::{Effects, Fate, ON_PURPOSE, Refused};
use crate::fire::task;
use crate::place::Commits;
use crate::respawn::say;

/// How long leases last.
pub const LEASE: Duration = Duration::from_secs(1);
/// How long handlers may take to stop. Those that hang are given up after twice as long.
pub const PATIENCE: Duration = Duration::from_millis(300);
/// What a process says when its worker lost a lease.
pub const LOST: &str = "lost";
pub const PLACES: usize = 4;
/// How long a stop may take: the patience, and the second that the ends of handlers that were cut off have. The rest is
/// for a slow machine. Those that are stuck take an hour.
const LONGEST_STOP: Duration = Duration::from_millis(PATIENCE.as_millis() as u64 + 1_000 + 15_000);
/// Longer than a handler that hangs may, and than a lease that was cancelled lasts.
const TOO_LONG: Duration = Duration::from_millis(900);
const NAP: Duration = Duration::from_millis(20);

/// Where handlers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Threads,
    #[cfg(feature = "tokio")]
    Futures,
}

/// Works until it is killed, or told to stop.
pub fn work(orders: Orders) {
    let Orders { effects, holder, kind, stop } = orders;
    // No one reads what they print meanwhile, and a pipe that is full would hold them up.
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<String>().is_none_or(|text| text != ON_PURPOSE) {
            others(panic);
        }
    }));
    let store = loop {
        // The database may be down.
        match effects.place.try_open(Commits::Durable) {
            Ok(store) => break store,
            Err(_) => std::thread::sleep(NAP),
        }
    };
    let (handle, runtime) = (LoopHandle::new(), Builder::new_multi_thread().enable_all().build().unwrap());
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    let worker = Worker::new(store, holder.as_str().try_into().unwrap())
        .places(PLACES)
        .lease(LEASE)
        .patience(PATIENCE)
        .longest_wait(NAP * 5)
        .on_error(|error| {
            if matches!(error, Error::LeaseLost { .. }) {
                say(LOST);
            }
        })
        .max_run(|task: &TaskRecord| kind_of(task).starts_with("hangs").then_some(PATIENCE));
    let worker = match kind {
        Kind::Threads => worker.handler(move |attempt: &Attempt| {
            runtime.block_on(handle_one(effects.clone(), kind, attempt.clone()))
        }),
        #[cfg(feature = "tokio")]
        Kind::Futures => worker.handler_async(runtime.handle(), move |attempt: Attempt| {
            handle_one(effects.clone(), kind, attempt)
        }),
    };
    let running = handle.clone();
    let running = std::thread::spawn(move || worker.run(&running));
    say("ready");
    // Nothing else ends it if the test is killed.
    let parent = std::os::unix::process::parent_id();
    while !stop.exists() && !running.is_finished() && std::os::unix::process::parent_id() == parent {
        std::thread::sleep(NAP);
    }
    let told = Instant::now();
    handle.stop();
    while !running.is_finished() {
        assert!(
            told.elapsed() < LONGEST_STOP,
            "a worker was told to stop {LONGEST_STOP:?} ago, and still runs"
        );
        std::thread::sleep(NAP);
    }
    let report = running.join().unwrap().unwrap();
    let (unstored, working) = (report.unstored.len(), report.working.len());
    let took = told.elapsed().as_millis();
    say(&format!("{took} {} {} {unstored} {working}", report.stored, report.refused));
}

fn kind_of(task: &TaskRecord) -> &str {
    task.key.task.as_str().split('-').next().unwrap()
}

/// Waits for this long, even if it is asked to stop.
async fn ignore(length: Duration, kind: Kind, blocks: bool) {
    match kind {
        #[cfg(feature = "tokio")]
        Kind::Futures if !blocks => tokio::time::sleep(length).await,
        _ => std::thread::sleep(length),
    }
    let _ = blocks;
}

async fn handle_one(effects: Effects, kind: Kind, attempt: Attempt) -> Result<Outcome, Refused> {
    // Not the attempt's number, which a lost lease does not count.
    let is_first = attempt.task().epoch == 1;
    let fate = match kind_of(attempt.task()) {
        "plain" => return Ok(().into()),
        "ends" => {
            let after = follower(&attempt.task().key.task);
            let body =
                move |tx: &mut Tx<'_>| tx.enqueue(SystemClock.now(), std::slice::from_ref(&after)).map(drop);
            match kind {
                Kind::Threads => attempt.end((), body)?,
                #[cfg(feature = "tokio")]
                Kind::Futures => attempt.end_async((), body).await?,
            }
            return Ok(().into());
        }
        "fails" if is_first => Fate::Fails,
        "panics" if is_first => Fate::Panics,
        "hangs" if is_first => {
            ignore(TOO_LONG, kind, attempt.task().id.0 % 2 == 0).await;
            Fate::Commits
        }
        // Until its process ends. On a runtime every other one is dropped before.
        "stuck" if is_first => {
            ignore(Duration::from_secs(3_600), kind, attempt.task().id.0 % 2 == 0).await;
            Fate::Commits
        }
        "heeds" => {
            attempt.until_cancelled().await;
            // A lease that was lost is no cancel: another attempt waits for that.
            return match attempt.cancelled() {
                Some(Cancelled::Requested { .. }) => Err("told to stop".into()),
                _ => Ok(Outcome::GivenBack),
            };
        }
        "ignores" => {
            attempt.until_cancelled().await;
            ignore(TOO_LONG, kind, false).await;
            Fate::Commits
        }
        _ => Fate::Commits,
    };
    effects.take_place(&attempt, fate).await?;
    Ok(().into())
}

/// The task that follows one whose end enqueues another.
pub fn follower(name: &stationmaster::id::TaskName) -> NewTask {
    task(&format!("follows-{name}"))
}
