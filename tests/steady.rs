//! A steady load on one SQLite file: what a task leaves behind goes with it, so the file stops growing.
//!
//! `STATIONMASTER_STEADY=long cargo test --release --test steady -- --nocapture` sends 3.8 million tasks through a
//! backlog of 10,000; without it the load is a fortieth of that.
//!
//! The clock is the test's: 6,400 tasks pass in a second of it, on any machine, so the long form lasts ten minutes.
//! The first tenth of the tasks is therefore the first minute, and the size of the file then is the measure.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::Durability;
use stationmaster::store::Store;
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore, rusqlite::Connection};
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};

/// What one round enqueues, admits, starts and ends: the default budget of a tick.
const ROUND: usize = 512;
/// How far the clock goes in a round.
const STEP: Duration = Duration::from_millis(80);

struct Load {
    tasks: usize,
    /// How many wait at any time.
    backlog: usize,
    /// How long ended tasks are kept.
    keep: Duration,
}

impl Load {
    fn chosen() -> Self {
        match std::env::var("STATIONMASTER_STEADY") {
            Ok(form) if form == "long" => {
                Self { tasks: 3_800_000, backlog: 10_000, keep: Duration::from_secs(10) }
            }
            _ => Self { tasks: 95_000, backlog: 1_000, keep: Duration::from_secs(1) },
        }
    }
}

fn new_task(n: usize) -> NewTask {
    let key =
        TaskKey::new("load", format!("flow-{}", n % 7), format!("run-{}", n / 100), format!("task-{n}"));
    NewTask::new(key.unwrap()).pool("wide".try_into().unwrap())
}

fn enqueue_next(store: &dyn Store, now: Timestamp, numbers: std::ops::Range<usize>) {
    let tasks: Vec<NewTask> = numbers.map(new_task).collect();
    store.write(|tx| tx.enqueue(now, &tasks)).unwrap();
}

/// Each task that was admitted is started, and ends well.
fn run(store: &dyn Store, now: Timestamp, leases: &[LeaseRef]) {
    let started = store.write(|tx| tx.start(now, leases)).unwrap();
    assert!(started.iter().all(|moved| *moved));
    let ends: Vec<Finish> = leases.iter().map(|lease| Finish::success(*lease)).collect();
    store.write(|tx| tx.finish(now, &ends)).unwrap();
}

/// What the load takes up.
struct Size {
    file: u64,
    log: u64,
    /// Of the process; unknown where there is no `/proc`.
    resident: Option<u64>,
    rows: BTreeMap<String, i64>,
}

impl Size {
    fn of(path: &Path) -> Self {
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self { file: bytes(path), log: bytes(Path::new(&log)), resident: resident(), rows: rows(path) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        write!(out, "file {:.1} MiB, log {:.1} MiB, resident ", mib(self.file), mib(self.log))?;
        match self.resident {
            Some(bytes) => write!(out, "{:.1} MiB", mib(bytes))?,
            None => write!(out, "unknown")?,
        }
        write!(out, ", rows {:?}", self.rows)
    }
}

fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// How many rows the tables have that have any.
fn rows(path: &Path) -> BTreeMap<String, i64> {
    let conn = Connection::open(path).unwrap();
    let mut tables = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let count = |name: &String| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM \"{name}\""), [], |row| row.get(0)).unwrap()
    };
    names.iter().map(|name| (name.clone(), count(name))).filter(|(_, rows)| *rows > 0).collect()
}

#[test]
fn a_steady_load_does_not_grow_its_file() {
    let load = Load::chosen();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("load.db");
    let options = SqliteOptions::new().durability(Durability::Process);
    let store = Arc::new(SqliteStore::open(&path, options).unwrap());
    store.write(|tx| tx.define([PoolSpec::new("wide", Slots::Unlimited)?], IfExists::Replace)).unwrap();
    let mut admitter = Admitter::new(store.clone(), "host".try_into().unwrap()).budget(ROUND);
    let mut upkeep = Upkeep::new(store.clone()).retain_ended_for(load.keep);

    let began = Instant::now();
    let mut now = Timestamp::from_micros(1_767_225_600_000_000);
    enqueue_next(&*store, now, 0..load.backlog);
    let (mut enqueued, mut ended) = (load.backlog, 0);
    let mut first_tenth: Option<Size> = None;
    while ended < load.tasks {
        now += STEP;
        let next = (enqueued + ROUND).min(load.tasks);
        enqueue_next(&*store, now, enqueued..next);
        enqueued = next;
        let admission = admitter.tick(now).unwrap();
        let leases: Vec<LeaseRef> = admission.granted.iter().map(|task| task.lease_ref()).collect();
        assert!(!leases.is_empty(), "{ended} of {} tasks ended, and no other is admitted", load.tasks);
        run(&*store, now, &leases);
        ended += leases.len();
        upkeep.tick(now).unwrap();
        if first_tenth.is_none() && ended >= load.tasks / 10 {
            let size = Size::of(&path);
            println!("{ended} tasks in {:.0} s: {size}", began.elapsed().as_secs_f64());
            first_tenth = Some(size);
        }
    }
    let (first, last) = (first_tenth.unwrap(), Size::of(&path));
    println!("{ended} tasks in {:.0} s: {last}", began.elapsed().as_secs_f64());
    let growth = last.file as f64 / first.file as f64;
    println!("the file is {growth:.2} times as large as after the first tenth");
    assert!(growth <= 1.2, "the file grew from {} to {} bytes", first.file, last.file);
    assert_eq!(last.rows["sm_request"], 1, "an admitter leaves its latest tick, and no other");
}
