//! A pool, a retry and a sensor in one program, which drives the services in one loop.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! Three loads share a pool of one slot, so they run one after another. A flaky task fails once and is retried after its backoff.
//! A report waits for a file as a sensor: it has no thread and holds no slot meanwhile.

use std::{path::Path, sync::Arc, time::Duration};

use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::kinds::{Condition, FileExists, builtin};
use stationmaster::service::{Admitter, Poker, Service};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState, ops::Finish, sensor::Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // To survive the process: Arc::new(stationmaster::store::SqliteStore::open("jobs.db", Default::default())?)
    let store = Arc::new(MemoryStore::new());
    let file = std::env::temp_dir().join(format!("stationmaster-quickstart-{}", std::process::id()));
    // The work. A key consists of namespace, workflow, run and task.
    let task = |name: &str| TaskKey::new("prod", "nightly", "2026-01-01", name).map(NewTask::new);
    let retry = RetryPolicy::exponential(Duration::from_millis(50)).max_attempts(3);
    let load = |name: &str| task(name).map(|task| task.pool("database".try_into().unwrap()));
    let flaky = task("flaky")?.retry(retry.build()?);
    let tasks = [flaky, task("report")?, load("load-a")?, load("load-b")?, load("load-c")?];
    store.write(|tx| {
        tx.define([PoolSpec::new("database", Slots::Limited(1))?], IfExists::Replace)?;
        tx.enqueue(SystemClock.now(), &tasks)
    })?;
    // The services: one grants slots, one checks files. An `Upkeep` would end the leases of dead processes.
    let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?).budget(4); // at most 4 per tick
    let poker = Poker::new(store.clone(), "poker-1".try_into()?).min_interval(Duration::from_millis(10));
    let mut poker = builtin(poker, store.clone())?; // the built-in kinds

    let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
    let ended = loop {
        let admission = admitter.tick(SystemClock.now())?;
        admission.refusals.iter().for_each(|refused| println!("{} wait: {}", refused.tasks, refused.reason));
        for task in &admission.granted {
            run(&*store, task, &file)?;
        }
        let (now, poked) = (SystemClock.now(), poker.tick(SystemClock.now())?);
        let found: Vec<TaskRecord> = store.read(|tx| tx.tasks(&keys))?.into_iter().flatten().collect();
        if found.iter().all(|task| task.state.is_end()) {
            break found;
        }
        // Sleeps until the next retry or poke is due. With threads, use `drive`, as in examples/threads_host.rs.
        let due = [admission.next_due, poked.next_due].into_iter().flatten().min().unwrap_or(now);
        let pause = due.saturating_duration_since(now);
        std::thread::sleep(pause.clamp(Duration::from_millis(1), Duration::from_millis(20)));
    };
    std::fs::remove_file(&file)?;
    ended.iter().for_each(|end| println!("{}: {} after {} attempts", end.key, end.state, end.attempt));
    assert!(ended.iter().all(|task| task.state == TaskState::Success) && ended[0].attempt == 2);
    assert!(ended[1].value.as_deref().is_some_and(|landed| landed.contains("bytes")), "what the sensor saw");
    Ok(())
}

/// The host's part: runs a task that it was granted.
fn run(store: &dyn Store, task: &TaskRecord, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (lease, now) = (task.lease_ref(), SystemClock.now());
    assert!(store.write(|tx| tx.start(now, &[lease]))?[0], "the lease is lost: stop here");
    println!("{} runs, attempt {}", task.key, task.attempt);
    let settings = Settings::new(Duration::from_millis(50), Duration::from_secs(60))?;
    let sensor = FileExists::at(file).sensor(lease, settings)?;
    let end = match task.key.task.as_str() {
        "report" => {
            return Ok(store.write(|tx| tx.register(now, std::slice::from_ref(&sensor))).map(drop)?);
        }
        "flaky" if task.attempt == 1 => Finish::failed(lease, "no route to host"),
        "load-c" => std::fs::write(file, "rows").map(|()| Finish::success(lease))?,
        _ => Finish::success(lease),
    };
    Ok(store.write(|tx| tx.finish(now, std::slice::from_ref(&end))).map(drop)?)
}
