//! A tokio program as the host: services are futures beside a cancellation, tasks are tokio tasks, pokes need no thread.
//!
//! A task whose lease was lost is another's to work on, so its work is dropped. A store that is busy for a
//! while ends no attempt.
//!
//! ```sh
//! cargo run --example tokio_host --features tokio              # until all is done
//! cargo run --example tokio_host --features tokio -- 30        # stops after 30 ms; so does Ctrl-C
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::service::{Admitter, LoopHandle, Poker, Reaper, WakingStore};
use stationmaster::store::MemoryStore;
use stationmaster::tokio::{AsyncAdmitter, AsyncService, AsyncStore, drive};
use stationmaster::{NewTask, Renewal, Result, TaskKey, TaskRecord, TaskState};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(60); // the admitter's
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
pub(crate) async fn work(store: AsyncStore, stop: LoopHandle, task: TaskRecord) -> Result<()> {
    let lease = task.lease_ref();
    again(|| store.write(move |tx| tx.start(SystemClock.now(), &[lease]))).await?.fenced()?;
    if task.key.task.as_str().starts_with("wait") {
        let page = Page { url: format!("https://data/{}", task.key.task) };
        let sensor = page.sensor(lease, Settings::new(Duration::from_secs(1), HOUR)?)?;
        let register = || {
            let sensors = [sensor.clone()];
            store.write(move |tx| tx.register(SystemClock.now(), &sensors))
        };
        return again(register).await?.fenced().map(drop);
    }
    let mut work = std::pin::pin!(sleep(Duration::from_millis(10))); // in truth, something useful
    let mut pause = LEASE / 3;
    let end = loop {
        tokio::select! {
            () = &mut work => break Finish::success(lease),
            () = stop.stopped() => break Finish::given_back(lease),
            () = sleep(pause) => pause = match store.write(move |tx| tx.renew(SystemClock.now(), LEASE, &[lease])).await {
                Ok(renewed) if renewed == [Renewal::Lost] => {
                    eprintln!("{}: its lease was lost, and the work with it", task.key);
                    return Ok(());
                }
                // Another transaction has the lease right now, for example the reaper's.
                Ok(renewed) if renewed == [Renewal::Busy] => SOON,
                Ok(_) => LEASE / 3,
                // The lease holds for a while yet: it need not be the last word.
                Err(error) => {
                    eprintln!("{}: {error}", task.key);
                    SOON
                }
            },
        }
    };
    let finish = || {
        let ends = [end.clone()];
        store.write(move |tx| tx.finish(SystemClock.now(), &ends))
    };
    again(finish).await?.fenced().map(drop)
}

/// Calls again while the store is busy: for as long as a lease holds that is not renewed.
async fn again<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> Result<T> {
    let began = Instant::now();
    loop {
        match call().await {
            Err(error) if error.is_retryable() && began.elapsed() < LEASE => sleep(SOON).await,
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
    store.write(|tx| tx.put_pools(&[PoolSpec::new("default_pool", Slots::Limited(8))?])).await?;
    let tasks: Vec<_> = keys.iter().cloned().map(NewTask::new).collect();
    store.write(move |tx| tx.enqueue(SystemClock.now(), &tasks)).await?;

    let shared = store.store();
    let admitter = Admitter::new(shared.clone(), "host".try_into()?);
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
            working.spawn(work(store.clone(), stop.clone(), task));
        }
        ControlFlow::Continue(())
    });
    let reap = drive(&mut reaper, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    let poke = drive(&mut poker, &SystemClock, &stop, HOUR, |_| ControlFlow::Continue(()));
    // Whatever ends first drops the others where they are.
    let all_done = tokio::select! {
        ended = async { tokio::try_join!(admit, reap, poke) } => ended.map(|_| false)?,
        done = until_all_succeeded(&store, &keys) => done.map(|()| true)?,
        () = sleep(millis.map_or(HOUR, Duration::from_millis)) => false,
    };
    stop.stop();
    for task in admitter.undelivered().await.into_iter().flatten().flat_map(|admission| admission.granted) {
        let end = Finish::given_back(task.lease_ref());
        store.write(move |tx| tx.finish(SystemClock.now(), std::slice::from_ref(&end))).await?;
    }
    while let Some(worked) = working.join_next().await {
        if let Err(error) = worked? {
            eprintln!("attempt: {error}");
        }
    }
    poker.with(|poker| poker.leave()).await??;

    let [success, sensing, waiting] = count(&store, &keys).await?;
    println!("{success} succeeded, {sensing} wait for their target, {waiting} for a slot");
    assert_eq!(store.read(|tx| tx.all_pools()).await?[0].used, 0, "nobody holds a slot");
    assert_eq!(success + if all_done { 0 } else { sensing + waiting }, 200, "nor a lease");
    Ok(())
}
