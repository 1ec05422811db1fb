//! A pool, a retry and a sensor in one program of one thread.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! Three loads share a pool of one slot, so they run one after another. A flaky task fails once and is retried after its backoff.
//! A report waits for a file as a sensor: it has no thread and holds no slot meanwhile.

use std::sync::Arc;
use std::time::Duration;

use stationmaster::backoff::{Jitter, RetryPolicy};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::kinds::{Condition, FileExists, file_exists};
use stationmaster::service::lifecycle::{Finish, enqueue, finish, register, start};
use stationmaster::service::{Admitter, AdmitterOptions, Poker, PokerOptions, Service};
use stationmaster::store::{MemoryStore, Store, StoreExt};
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    // To survive the process: Arc::new(stationmaster::store::SqliteStore::open("jobs.db", Default::default())?)
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let folder = std::env::temp_dir().join(format!("stationmaster-quickstart-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("loaded");

    // What there is to do. A key is namespace, workflow, run, task.
    let task = |name: &str| TaskKey::new("prod", "nightly", "2026-01-01", name).map(NewTask::new);
    let retry =
        RetryPolicy::exponential(Duration::from_millis(50)).jitter(Jitter::None).max_attempts(3).build()?;
    let mut tasks = vec![task("flaky")?.retry(retry), task("report")?];
    for name in ["load-a", "load-b", "load-c"] {
        tasks.push(task(name)?.pool("database".try_into()?));
    }
    store.write(|tx| {
        tx.put_pools(&[PoolSpec::new("database", Slots::Limited(1))?])?;
        enqueue(tx, SystemClock.now(), &tasks)
    })?;

    // The services: one gives slots, one looks whether files are there. A `Reaper` would take back what dead processes held.
    let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
    let mut poker = Poker::new(
        store.clone(),
        "poker-1".try_into()?,
        PokerOptions::default().floor(Duration::from_millis(10)),
    )?
    .kind(FileExists::kind()?, file_exists);

    let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
    let mut at_once = 0;
    let ended = loop {
        let now = SystemClock.now();
        let admission = admitter.tick(now)?;
        at_once = at_once
            .max(admission.granted.iter().filter(|task| task.lane.pool.as_str() == "database").count());
        for deferral in &admission.deferrals {
            println!("{} wait: {}", deferral.tasks, deferral.reason);
        }
        for task in &admission.granted {
            run(&*store, task, &file)?;
        }
        let poked = poker.tick(now)?;
        let ended: Vec<TaskRecord> = store.read(|tx| Ok(tx.tasks(&keys)?))?.into_iter().flatten().collect();
        if ended.iter().all(|task| task.state.is_end()) {
            break ended;
        }
        // Until the next retry or poke is due. With threads: `run_blocking`, as in examples/threads_host.rs.
        let due = [admission.next_due, poked.next_due].into_iter().flatten().min();
        let pause = due.map_or(Duration::ZERO, |due| stationmaster::time::since(due, now));
        std::thread::sleep(pause.clamp(Duration::from_millis(1), Duration::from_millis(20)));
    };

    std::fs::remove_dir_all(&folder)?;
    for task in &ended {
        println!("{}: {} after {} attempts", task.key, task.state, task.attempt);
    }
    assert!(ended.iter().all(|task| task.state == TaskState::Success));
    assert!(at_once <= 1, "never two loads at once");
    assert_eq!(ended[0].attempt, 2, "the flaky task was retried");
    assert!(
        ended[1].value.as_deref().is_some_and(|landed| landed.contains("loaded")),
        "what the sensor landed with"
    );
    Ok(())
}

/// What the host does with a task that it was granted.
fn run(store: &dyn Store, task: &TaskRecord, file: &std::path::Path) -> Result<()> {
    let (lease, now) = (task.lease_ref(), SystemClock.now());
    store.write(|tx| start(tx, now, &[lease]))?;
    println!("{} runs, attempt {}", task.key, task.attempt);
    let end = match task.key.task.as_str() {
        "report" => {
            let settings = Settings::new(Duration::from_millis(50), Duration::from_secs(60))?;
            let sensor = FileExists::at(file).sensor(lease, settings)?;
            store.write(|tx| register(tx, now, std::slice::from_ref(&sensor)))?;
            return Ok(());
        }
        "flaky" if task.attempt == 1 => Finish::failed(lease, "no route to host"),
        "load-c" => {
            std::fs::write(file, "rows")?;
            Finish::success(lease)
        }
        _ => Finish::success(lease),
    };
    store.write(|tx| finish(tx, now, std::slice::from_ref(&end)))?;
    Ok(())
}
