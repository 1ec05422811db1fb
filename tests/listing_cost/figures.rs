//! How long the pages of a large store take, beside those of an empty one, and what open pages cost a tick:
//!
//! ```sh
//! STATIONMASTER_LIST_TASKS=1000000 cargo test --release --all-features --test listing_cost figures -- --ignored --nocapture --test-threads=1
//! ```
//!
//! Besides the tasks there are a tenth as many sensors, and ten times as many runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::dashboard::Dashboard;
use stationmaster::ops::{AdmitRequest, Finish, StopBeforeStart};
use stationmaster::run::{RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::Store;
use stationmaster::{NewTask, TaskKey};

use super::tasks;
use crate::http::Server;
use crate::world::World;

/// How often each page is asked for.
const TIMES: usize = 100;
/// Records of a call.
const PIECE: usize = 5_000;
/// How many pages are kept open, and how often each is asked for.
const OPEN: usize = 20;
const REFRESH: Duration = Duration::from_secs(3);
/// How many rounds without and with open pages, and how long each is.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(6);

const PAGES: [&str; 9] = [
    "overview",
    "next",
    "tasks?state=waiting",
    "tasks?state=failed",
    "task?namespace=small&workflow=w&run=r&task=4-1",
    "runs?zoom=1h",
    "runs?zoom=90d",
    "sensors",
    "health",
];

/// Adds sensors that share what they wait for, ten by ten.
fn add_sensors(store: &dyn Store, count: usize) {
    let now = SystemClock.now();
    let settings = Settings::new(Duration::from_secs(60), Duration::from_secs(864_000)).unwrap();
    for from in (0..count).step_by(PIECE) {
        let tasks: Vec<NewTask> = (from..count.min(from + PIECE))
            .map(|at| {
                let key = TaskKey::new("sensing", "w", "r", format!("s-{at}")).unwrap();
                NewTask::new(key).pool("rare".try_into().unwrap()).queue("sensing".try_into().unwrap())
            })
            .collect();
        let request = format!("sensors-{from}").as_str().try_into().unwrap();
        let order = AdmitRequest::new("filler".try_into().unwrap(), request, PIECE, Duration::from_secs(60));
        let order = order.started().serves(["sensing".try_into().unwrap()]);
        store.write(|tx| tx.enqueue(now, &tasks)).unwrap();
        let granted = store.write(|tx| tx.admit(now, &order)).unwrap().granted;
        let sensor = |(at, task): (usize, &stationmaster::TaskRecord)| {
            let context = format!("{{\"path\":\"/in/{}\"}}", (from + at) / 10);
            let context = PokeContext::from_json(&context).unwrap();
            NewSensor::new(task.lease_ref(), "file".try_into().unwrap(), context, settings)
        };
        let sensors: Vec<NewSensor> = granted.iter().enumerate().map(sensor).collect();
        store.write(|tx| tx.register(now, &sensors)).unwrap();
    }
}

/// Adds runs of an hour over the last 90 days.
fn add_runs(store: &dyn Store, count: usize) {
    let now = SystemClock.now();
    let between = Duration::from_secs(90 * 86_400).as_micros() as u64 / count.max(1) as u64;
    for from in (0..count).step_by(PIECE) {
        let runs: Vec<RunRecord> = (from..count.min(from + PIECE))
            .map(|at| {
                let start = now - Duration::from_micros(between * (count - at) as u64);
                let run = RunRecord::open(RunKey::new("prod", format!("run-{at}")).unwrap(), start);
                match start + Duration::from_secs(3_600) {
                    stop if stop < now => run.closed(stop, RunStatus::Completed),
                    _ => run,
                }
            })
            .collect();
        store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
    }
}

/// The 50th and the 99th of a hundred times, in milliseconds, of each page.
fn times(server: &Server, asked: &AtomicUsize) -> Vec<(f64, f64)> {
    let one = |page: &str| {
        let mark = if page.contains('?') { '&' } else { '?' };
        let path = format!("/{page}{mark}n={}", asked.fetch_add(1, Ordering::Relaxed));
        let began = Instant::now();
        let answer = server.get(&path);
        assert!(answer.status == 200 || answer.status == 404 && page.starts_with("task?"), "{}", answer.body);
        began.elapsed().as_secs_f64() * 1_000.0
    };
    let page = |page: &&str| {
        one(page);
        let mut times: Vec<f64> = (0..TIMES).map(|_| one(page)).collect();
        times.sort_by(f64::total_cmp);
        (times[TIMES / 2], times[TIMES * 99 / 100])
    };
    PAGES.iter().map(page).collect()
}

/// How many tasks are enqueued, granted and ended in a while, 16 at a time.
fn drain(store: &dyn Store, ticks: &mut usize) -> f64 {
    let (began, mut ended) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        *ticks += 1;
        let request = format!("drain-{ticks}").as_str().try_into().unwrap();
        let tasks: Vec<NewTask> = (0..16)
            .map(|at| NewTask::new(TaskKey::new("drain", "w", "r", format!("{ticks}-{at}")).unwrap()))
            .collect();
        store.write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();
        let lease = Duration::from_secs(600);
        let order = AdmitRequest::new("drainer".try_into().unwrap(), request, 16, lease).started();
        let granted = store.write(|tx| tx.admit(SystemClock.now(), &order)).unwrap().granted;
        let ends: Vec<Finish> = granted.iter().map(|task| Finish::success(task.lease_ref())).collect();
        store.write(|tx| tx.finish(SystemClock.now(), &ends)).unwrap();
        ended += granted.len();
    }
    ended as f64 / began.elapsed().as_secs_f64()
}

/// What is left of the rate of ticks while pages are open: the median of alternating rounds, and their range.
fn beside_pages(store: &dyn Store, server: &Server) -> [f64; 3] {
    let mut ticks = 0;
    drain(store, &mut ticks);
    let mut ratios: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let alone = drain(store, &mut ticks);
            let is_over = AtomicBool::new(false);
            let beside = std::thread::scope(|scope| {
                for reader in 0..OPEN {
                    let (is_over, page) = (&is_over, PAGES[reader % PAGES.len()]);
                    scope.spawn(move || {
                        std::thread::sleep(REFRESH * reader as u32 / OPEN as u32);
                        while !is_over.load(Ordering::Relaxed) {
                            server.get(&format!("/{page}"));
                            std::thread::sleep(REFRESH);
                        }
                    });
                }
                let beside = drain(store, &mut ticks);
                is_over.store(true, Ordering::Relaxed);
                beside
            });
            beside / alone
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    [ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]]
}

fn show(name: &str, empty: &Arc<dyn Store>, full: &Arc<dyn Store>) {
    let asked = AtomicUsize::new(0);
    let of = |store: &Arc<dyn Store>| times(&Server::new(Dashboard::new(Arc::clone(store)).router()), &asked);
    let few = of(empty);
    let tasks = tasks();
    World::fill(&**full, tasks);
    add_sensors(&**full, tasks / 10);
    add_runs(&**full, tasks * 10);
    let many = of(full);
    println!("{name}: {tasks} tasks, {} sensors, {} runs; ms, p50 and p99", tasks / 10, tasks * 10);
    println!("{:50} {:>8} {:>8} {:>8} {:>8}", "page", "empty", "", "full", "");
    for ((page, few), many) in PAGES.iter().zip(few).zip(many) {
        println!("{page:50} {:8.1} {:8.1} {:8.1} {:8.1}", few.0, few.1, many.0, many.1);
    }
    let server = Server::new(Dashboard::new(Arc::clone(full)).router());
    let [median, least, most] = beside_pages(&**full, &server);
    println!("ticks beside {OPEN} open pages: {median:.3} of without ({least:.3} to {most:.3})");
}

#[cfg(feature = "sqlite")]
#[test]
#[ignore = "it prints figures, and takes minutes"]
fn figures_on_sqlite() {
    use stationmaster::store::SqliteStore;
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(folder.path().join(name), Default::default()).unwrap())
    };
    show("SQLite", &open("empty.db"), &open("full.db"));
}

#[cfg(feature = "postgres")]
#[test]
#[ignore = "it prints figures, and takes minutes"]
fn figures_on_postgres() {
    let scratches = [crate::scratch::Scratch::new(), crate::scratch::Scratch::new()];
    let [empty, full]: [Arc<dyn Store>; 2] =
        scratches.each_ref().map(|scratch| -> Arc<dyn Store> { Arc::new(scratch.open(|options| options)) });
    show("PostgreSQL", &empty, &full);
}
