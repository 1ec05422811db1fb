//! A tokio program as the host: handlers and pokes are futures. Worker, poker and upkeep are awaited together with a
//! cancellation.
//!
//! ```sh
//! cargo run --example tokio_host --features tokio              # until all is done
//! cargo run --example tokio_host --features tokio -- 30        # stops after 30 ms; so does Ctrl-C
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Outcome};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::service::{Attempt, LoopHandle, Poker, Upkeep, WakingStore, Worker};
use stationmaster::store::MemoryStore;
use stationmaster::tokio::{AsyncService, AsyncStore, drive};
use stationmaster::{NewTask, Result, TaskKey, TaskState};
use tokio::runtime::Handle;
use tokio::time::sleep;

const HOUR: Duration = Duration::from_secs(3600);

/// What some tasks wait for.
#[derive(Serialize, Deserialize)]
struct Page {
    url: String,
}

impl Condition for Page {
    const KIND: &'static str = "http";
    const EXAMPLE: &'static str = r#"{"url": "https://data/7"}"#;
}

/// Works on one task, and gives it back when the program should stop. If its lease is lost, this future is dropped.
pub(crate) async fn work(store: AsyncStore, attempt: Attempt) -> Result<Outcome> {
    if attempt.task().key.task.as_str().starts_with("wait") {
        let page = Page { url: format!("https://data/{}", attempt.task().key.task) };
        let sensor = [page.sensor(attempt.lease(), Settings::new(Duration::from_secs(1), HOUR)?)?];
        store.write(move |tx| tx.register(SystemClock.now(), &sensor)?.fenced()).await?;
        attempt.ended_elsewhere(); // it is a sensor now, and the worker has no part in it
        return Ok(().into());
    }
    tokio::select! {
        () = sleep(Duration::from_millis(10)) => Ok(().into()), // your work goes here
        () = attempt.until_cancelled() => Ok(Outcome::GivenBack),
    }
}

/// Stands for an HTTP request.
async fn look() -> PokeOutcome {
    sleep(Duration::from_millis(20)).await;
    PokeOutcome::Landed(None)
}

/// Returns how many of these tasks succeeded, wait as sensors, and wait for slots.
async fn count(store: &AsyncStore, keys: &[TaskKey]) -> Result<[usize; 3]> {
    let keys = keys.to_vec();
    let tasks = store.read(move |tx| tx.tasks(&keys)).await?;
    let of = |state| tasks.iter().flatten().filter(|task| task.state == state).count();
    Ok([TaskState::Success, TaskState::Sensing, TaskState::Scheduled].map(of))
}

async fn until_all_succeeded(store: &AsyncStore, keys: &[TaskKey]) -> Result<()> {
    while count(store, keys).await?[0] < keys.len() {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (stop, runtime) = (LoopHandle::new(), Handle::current());
    let store = AsyncStore::new(Arc::new(WakingStore::new(MemoryStore::new(), stop.clone())));
    let name = |n: usize| format!("{}-{n}", ["wait", "load"][n % 2]);
    let keys = (0..200).map(|n| TaskKey::new("ns", "nightly", "r1", name(n))).collect::<Result<Vec<_>>>()?;
    store
        .write(|tx| tx.define([PoolSpec::new("default_pool", Slots::Limited(8))?], IfExists::Replace))
        .await?;
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(5).build()?;
    let tasks: Vec<_> = keys.iter().map(|key| NewTask::new(key.clone()).retry(retry.clone())).collect();
    store.write(move |tx| tx.enqueue(SystemClock.now(), &tasks)).await?;

    let (shared, handlers) = (store.store(), store.clone());
    let worker = Worker::new(shared.clone(), "host".try_into()?).places(8);
    let worker = worker.handler_async(&runtime, move |attempt| work(handlers.clone(), attempt));
    let mut upkeep = AsyncService::new(Upkeep::new(shared.clone()));
    let poker = Poker::new(shared.clone(), "host".try_into()?).refresh_every(Duration::from_millis(10));
    let mut poker = AsyncService::new(poker.kind_async(Page::kind()?, &runtime, |_| look()));

    let cancel = stop.clone();
    ctrlc::set_handler(move || cancel.stop())?;
    let millis = std::env::args().nth(1).map(|millis| millis.parse()).transpose()?;
    let stops = stop.clone();
    let working = tokio::spawn(async move { worker.run_async(&stops).await });
    // The reports of both say when they are due, so they may sleep for any length of time.
    let reap = drive(&mut upkeep, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    let poke = drive(&mut poker, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    // The first one to end drops the others.
    let all_done = tokio::select! {
        ended = async { tokio::try_join!(reap, poke) } => ended.map(|_| false)?,
        done = until_all_succeeded(&store, &keys) => done.map(|()| true)?,
        () = sleep(millis.map_or(HOUR, Duration::from_millis)) => false,
    };
    stop.stop();
    working.await??; // the handlers return, and their ends are stored
    poker.with(|poker| poker.leave()).await??;

    let [success, sensing, waiting] = count(&store, &keys).await?;
    println!("{success} succeeded, {sensing} wait for their target, {waiting} for a slot");
    assert_eq!(store.read(|tx| tx.all_pools()).await?[0].used, 0, "nobody holds a slot");
    assert_eq!(success + if all_done { 0 } else { sensing + waiting }, 200, "nor a lease");
    Ok(())
}
