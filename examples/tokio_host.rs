//! A tokio program as the host: services are futures beside a cancellation, tasks are tokio tasks, pokes need no thread.
//!
//! A keeper renews all leases. A task whose lease was lost is another's to work on, so its work is dropped. A
//! store that is busy for a while ends no attempt.
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
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::service::{Admitter, Kept, LoopHandle, Poker, Reaper, WakingStore};
use stationmaster::store::MemoryStore;
use stationmaster::tokio::{AsyncAdmitter, AsyncService, AsyncStore, drive};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SOON: Duration = Duration::from_secs(1); // until what failed is tried again
const HOUR: Duration = Duration::from_secs(3600); // seconds, if other processes enqueue: they wake no loop here

/// What some tasks wait for.
#[derive(Serialize, Deserialize)]
struct Page {
    url: String,
}

impl Condition for Page {
    const KIND: &'static str = "http";
    const EXAMPLE: &'static str = r#"{"url": "https://data/7"}"#;
}

/// Works on one task under its lease; hands it back when the program is to stop. A stale lease is an error.
pub(crate) async fn work(store: AsyncStore, stop: LoopHandle, kept: Kept, task: TaskRecord) -> Result<()> {
    let lease = kept.lease();
    again(&kept, || store.write(move |tx| tx.start(SystemClock.now(), &[lease]))).await?.fenced()?;
    if task.key.task.as_str().starts_with("wait") {
        let page = Page { url: format!("https://data/{}", task.key.task) };
        let sensor = page.sensor(lease, Settings::new(Duration::from_secs(1), HOUR)?)?;
        let register = || {
            let sensors = [sensor.clone()];
            store.write(move |tx| tx.register(SystemClock.now(), &sensors))
        };
        return again(&kept, register).await?.fenced().map(drop);
    }
    let end = tokio::select! {
        () = sleep(Duration::from_millis(10)) => Finish::success(lease), // in truth, something useful
        () = stop.stopped() => Finish::given_back(lease),
        () = kept.lost() => {
            eprintln!("{}: its lease was lost, and the work with it", task.key);
            return Ok(());
        }
    };
    let finish = || {
        let ends = [end.clone()];
        store.write(move |tx| tx.finish(SystemClock.now(), &ends))
    };
    again(&kept, finish).await?.fenced().map(drop)
}

/// Calls again while the store is busy, for as long as the lease holds.
async fn again<T, F: Future<Output = Result<T>>>(kept: &Kept, mut call: impl FnMut() -> F) -> Result<T> {
    loop {
        match call().await {
            Err(error) if error.is_retryable() && kept.holds(SystemClock.now()) => sleep(SOON).await,
            answer => return answer,
        }
    }
}

/// An HTTP request, in a program that makes some.
async fn look() -> PokeOutcome {
    sleep(Duration::from_millis(20)).await;
    PokeOutcome::Landed(None)
}

/// How many of these tasks succeeded, wait as sensors, wait for slots.
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
    let stop = LoopHandle::new();
    let store = AsyncStore::new(Arc::new(WakingStore::new(MemoryStore::new(), stop.clone())));
    let name = |n: usize| format!("{}-{n}", ["wait", "load"][n % 2]);
    let keys =
        (0..200).map(|n| TaskKey::new("ns", "nightly", "r1", name(n))).collect::<Result<Vec<_>, _>>()?;
    store
        .write(|tx| tx.define([PoolSpec::new("default_pool", Slots::Limited(8))?], IfExists::Replace))
        .await?;
    let tasks: Vec<_> = keys.iter().cloned().map(NewTask::new).collect();
    store.write(move |tx| tx.enqueue(SystemClock.now(), &tasks)).await?;

    let shared = store.store();
    let admitter = Admitter::new(shared.clone(), "host".try_into()?);
    let keeper = admitter.keeper();
    let mut keeping = AsyncService::new(keeper.clone());
    let mut admitter = AsyncAdmitter::new(admitter);
    let mut reaper = AsyncService::new(Reaper::new(shared.clone()));
    let poker = Poker::new(shared.clone(), "host".try_into()?).refresh_every(Duration::from_millis(10));
    let mut poker = AsyncService::new(poker.kind_async(Page::kind()?, &Handle::current(), |_| look()));

    let cancel = stop.clone();
    ctrlc::set_handler(move || cancel.stop())?;
    let millis = std::env::args().nth(1).map(|millis| millis.parse()).transpose()?;
    let mut working = JoinSet::new();
    let admit = drive(&mut admitter, &SystemClock, &stop, HOUR, |admission| {
        for task in admission.into_iter().flat_map(|admission| admission.granted) {
            working.spawn(work(store.clone(), stop.clone(), keeper.keep(&task), task));
        }
        ControlFlow::Continue(())
    });
    let keep = drive(&mut keeping, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    let reap = drive(&mut reaper, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    let poke = drive(&mut poker, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    // Whatever ends first drops the others where they are.
    let all_done = tokio::select! {
        ended = async { tokio::try_join!(admit, keep, reap, poke) } => ended.map(|_| false)?,
        done = until_all_succeeded(&store, &keys) => done.map(|()| true)?,
        () = sleep(millis.map_or(HOUR, Duration::from_millis)) => false,
    };
    stop.stop();
    let undelivered = admitter.undelivered().await.into_iter().flatten();
    let _kept: Vec<Kept> =
        undelivered.flat_map(|admission| admission.granted).map(|task| keeper.keep(&task)).collect();
    while let Some(worked) = working.join_next().await {
        if let Err(error) = worked? {
            eprintln!("attempt: {error}");
        }
    }
    keeping.with(|keeper| keeper.give_back(SystemClock.now())).await??;
    poker.with(|poker| poker.leave()).await??;

    let [success, sensing, waiting] = count(&store, &keys).await?;
    println!("{success} succeeded, {sensing} wait for their target, {waiting} for a slot");
    assert_eq!(store.read(|tx| tx.all_pools()).await?[0].used, 0, "nobody holds a slot");
    assert_eq!(success + if all_done { 0 } else { sensing + waiting }, 200, "nor a lease");
    Ok(())
}
