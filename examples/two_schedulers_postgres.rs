//! Two schedulers in separate processes share one PostgreSQL database: no task runs twice, and no pool is
//! oversubscribed.
//!
//! ```text
//! cargo run --features postgres --example two_schedulers_postgres
//! cargo run --features postgres --example two_schedulers_postgres -- postgres://user:password@db.example/jobs
//! ```
//!
//! Without a URL it uses the one in `STATIONMASTER_TEST_POSTGRES`, or `postgres://postgres@127.0.0.1:5432/test`. It
//! works in the schema `two_schedulers` and leaves it there for inspection. A second start continues with new runs of
//! the same workflow.

use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use chrono::DateTime;
use stationmaster::admission::IfExists;
use stationmaster::clock::Clock;
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{ActiveQuery, RunRecord};
use stationmaster::service::Admitter;
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState};

type Failure = Box<dyn std::error::Error>;

const TASKS: usize = 60;
const SLOTS: u32 = 3;

fn open(url: &str) -> Result<PostgresStore, Failure> {
    let options = PostgresOptions::new().schema("two_schedulers".try_into()?);
    let help =
        "give the URL of a PostgreSQL server as the argument, or start one: apt-get install postgresql";
    PostgresStore::connect(url, options).map_err(|error| format!("{error}\n{help}").into())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [url, run, scheduler] => schedule(url, run, scheduler),
        [url] => host(url),
        _ => host(
            &std::env::var("STATIONMASTER_TEST_POSTGRES")
                .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".into()),
        ),
    }
}

fn keys(run: &str) -> Result<Vec<TaskKey>, Failure> {
    Ok((0..TASKS)
        .map(|n| TaskKey::new("example", "crunch", run, format!("part-{n}")))
        .collect::<Result<_, _>>()?)
}

/// Enqueues tasks, starts both schedulers, and checks what they did.
fn host(url: &str) -> Result<(), Failure> {
    let store = open(url)?;
    // Leases and records use the database's clock, because the schedulers may be on machines whose clocks differ.
    let began = store.clock().now();
    let run = DateTime::from(began).to_rfc3339();
    let pool = PoolSpec::new("cluster", Slots::Limited(SLOTS))?;
    let task = |key| Ok(NewTask::new(key).pool("cluster".try_into()?).attempts_as_runs(true));
    let tasks = keys(&run)?.into_iter().map(task).collect::<Result<Vec<_>, Failure>>()?;
    store.write(|tx| {
        tx.define([&pool], IfExists::Replace)?;
        tx.enqueue(began, &tasks)
    })?;
    let spawn = |name| Command::new(std::env::current_exe()?).args([url, run.as_str(), name]).spawn();
    for mut scheduler in [spawn("east")?, spawn("west")?] {
        assert!(scheduler.wait()?.success(), "a scheduler failed");
    }

    let keys = keys(&run)?;
    let done = store.read(|tx| tx.tasks(&keys))?;
    let by = |name: &str| done.iter().flatten().filter(|task| task.value.as_deref() == Some(name)).count();
    let well = |task: &TaskRecord| task.state == TaskState::Success && task.attempt == 1;
    let attempts = store.read(|tx| {
        tx.active_runs(&ActiveQuery::new(began, store.clock().now()).namespace("example".try_into()?))
    })?;
    let (east, west, most) = (by("east"), by("west"), most_at_once(&attempts));
    println!("{TASKS} tasks: {east} by east, {west} by west, {most} at once at most of {SLOTS} slots");
    assert!(done.iter().flatten().all(well) && east + west == TASKS && attempts.len() >= TASKS);
    assert!(east > 0 && west > 0 && most <= SLOTS as usize);
    assert!(store.read(|tx| tx.audit())?.is_empty());
    Ok(())
}

/// Returns the most attempts that overlapped. One may begin in the microsecond in which another one ends.
fn most_at_once(attempts: &[RunRecord]) -> usize {
    let at = |run: &RunRecord| {
        attempts.iter().filter(|r| r.start <= run.start && r.stop > Some(run.start)).count()
    };
    attempts.iter().map(at).max().unwrap_or(0)
}

/// One scheduler: admits what fits, works on it, and finishes it, until nothing of the run is left.
fn schedule(url: &str, run: &str, name: &str) -> Result<(), Failure> {
    let store = Arc::new(open(url)?);
    let clock = store.clock();
    let mut admitter = Admitter::new(store.clone(), name.try_into()?).lease(Duration::from_secs(30));
    let keys = keys(run)?;
    loop {
        // It asks for two places, so that the other scheduler finds open slots, too.
        let granted = admitter.admit(clock.now(), 2)?.granted;
        let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
        store.write(|tx| tx.start(clock.now(), &leases))?;
        sleep(Duration::from_millis(20));
        let ends: Vec<Finish> = leases.iter().map(|lease| Finish::success_with(*lease, name)).collect();
        store.write(|tx| tx.finish(clock.now(), &ends))?;
        let tasks = store.read(|tx| tx.tasks(&keys))?;
        if tasks.iter().flatten().all(|task| task.state.is_end()) {
            return Ok(());
        }
    }
}
