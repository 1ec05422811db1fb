//! Admission ticks: how they grow with the backlog, and what they cost beside the bare state changes.
//!
//! `cargo bench --bench admission`; a part of it by its name: `cargo bench --bench admission -- memory/open`.
//! With `--features postgres`, and a server in `STATIONMASTER_TEST_POSTGRES`, ticks are measured there, too.
//! `STATIONMASTER_BENCH_MOST` caps the number of waiting tasks (1000000 without it).
//!
//! After the last measurement the ratios that matter are printed, of medians of this run.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{self, LimitSpec, Rate};
use stationmaster::id::{LimitKey, QueueName};
use stationmaster::ops::{Finish, Outcome};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::Admitter;
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};

const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
const BUDGET: usize = 512;
const POOLS: usize = 10;
/// Tasks that a tick can admit where nine tenths of the backlog cannot run: as many as there are at the smallest size.
const ADMISSIBLE: u32 = 99;

/// Every sample of this run, in seconds, by the name of what was measured.
static SAMPLES: Mutex<BTreeMap<String, Vec<f64>>> = Mutex::new(BTreeMap::new());

fn now() -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// All may run; the budget decides.
    Open,
    /// Nine tenths, of the highest priority, wait for a full pool.
    FullPool,
    /// Nine tenths belong to a workflow at its limit.
    FullLimit,
    /// Nine tenths need more slots than are open.
    TooBig,
    /// Nine tenths may not start before next week.
    NotYet,
    /// Nine tenths need a slot of an open pool and one of a full pool.
    TwoPools,
    /// Nine tenths are in [`QUEUES`] queues that the admitter does not serve.
    Queues,
    /// Nine tenths carry one of [`RATES`] keys whose token is taken.
    Rates,
    /// All may run, in [`SHARES`] shares.
    Shares,
    /// All may run, in [`MANY_POOLS`] pools.
    ManyPools,
    /// All may run, with [`MANY_KEYS`] keys of one family.
    ManyKeys,
    /// All may run, each with a key of its own.
    OwnLane,
}

const QUEUES: usize = 100_000;
const RATES: usize = 100_000;
const SHARES: usize = 10_000;
const MANY_POOLS: usize = 10_000;
const MANY_KEYS: usize = 100_000;

const SCENARIOS: [(&str, Scenario); 12] = [
    ("open", Scenario::Open),
    ("full_pool", Scenario::FullPool),
    ("full_limit", Scenario::FullLimit),
    ("too_big", Scenario::TooBig),
    ("not_yet", Scenario::NotYet),
    ("two_pools", Scenario::TwoPools),
    ("queues", Scenario::Queues),
    ("rates", Scenario::Rates),
    ("shares", Scenario::Shares),
    ("many_pools", Scenario::ManyPools),
    ("many_keys", Scenario::ManyKeys),
    ("own_lane", Scenario::OwnLane),
];

fn pool(n: usize) -> String {
    format!("pool-{n}")
}

fn key(workflow: &str, n: usize) -> TaskKey {
    TaskKey::new("bench", workflow, format!("run-{}", n / 100), format!("task-{n}")).unwrap()
}

impl Scenario {
    /// Returns whether the budget alone decides what is admitted.
    fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Shares | Self::ManyPools | Self::ManyKeys | Self::OwnLane)
    }
}

fn custom(name: &str, n: usize) -> LimitKey {
    LimitKey::new(format!("{name}/{n}")).unwrap()
}

/// Pools of this many slots each.
fn pools(store: &dyn Store, count: usize, slots: Slots) {
    let specs: Vec<PoolSpec> = (0..count).map(|n| PoolSpec::new(pool(n), slots).unwrap()).collect();
    store.write(|tx| tx.define(&specs, IfExists::Replace)).unwrap();
}

fn put(store: &dyn Store, tasks: impl Iterator<Item = NewTask>) {
    let mut tasks = tasks.peekable();
    while tasks.peek().is_some() {
        let chunk: Vec<NewTask> = tasks.by_ref().take(10_000).collect();
        store.write(|tx| tx.enqueue(now(), &chunk)).unwrap();
    }
}

/// A store with this many waiting tasks.
fn fill(store: &Arc<dyn Store>, scenario: Scenario, size: usize) {
    let count = if scenario == Scenario::ManyPools { MANY_POOLS } else { POOLS };
    let in_pool = |n: usize| NewTask::new(key("wide", n)).pool(pool(n % count).as_str().try_into().unwrap());
    if scenario.is_open() {
        pools(&**store, count, Slots::Limited(1_000_000));
        let family = LimitSpec::new("key/".try_into().unwrap(), 4).unwrap().family();
        if scenario == Scenario::ManyKeys {
            store.write(|tx| tx.define([family.clone()], IfExists::Replace)).unwrap();
        }
        let task = |n: usize| match scenario {
            Scenario::Shares => in_pool(n).share(custom("share", n % SHARES)),
            Scenario::ManyKeys => in_pool(n).limit(custom("key", n % MANY_KEYS)),
            Scenario::OwnLane => in_pool(n).limit(limits::task_in_run(&key("wide", n)).unwrap()),
            _ => in_pool(n).priority((n % 7) as i32),
        };
        put(&**store, (0..size).map(task));
        return;
    }
    pools(&**store, POOLS, Slots::Limited(ADMISSIBLE.div_ceil(POOLS as u32)));
    let workflow = limits::workflow(&key("narrow", 0)).unwrap();
    let specs = [
        PoolSpec::new("full", Slots::Limited(1)).unwrap(),
        PoolSpec::new("half", Slots::Limited(8)).unwrap(),
        PoolSpec::new("default_pool", Slots::Unlimited).unwrap(),
    ];
    store
        .write(|tx| {
            tx.define(&specs, IfExists::Replace)?;
            let rate = Rate::new(1, Duration::from_secs(86_400))?;
            let rates = LimitSpec::of("rated/".try_into()?).family().rate(rate);
            tx.define([LimitSpec::new(workflow.clone(), 1)?, rates], IfExists::Replace)
        })
        .unwrap();
    // What makes the pool and the limit full, half of the other pool taken, and takes the tokens.
    let blockers = [
        NewTask::new(key("blocker", 0)).pool("full".try_into().unwrap()),
        NewTask::new(key("blocker", 1)).pool("half".try_into().unwrap()).pool_slots(4),
        NewTask::new(key("blocker", 2)).limit(workflow.clone()),
    ];
    put(&**store, blockers.into_iter());
    if scenario == Scenario::Rates {
        let rated = |n: usize| NewTask::new(key("taker", n)).limit(custom("rated", n));
        put(&**store, (0..RATES.min(size)).map(rated));
    }
    let mut admitter = admitter(store, 3600);
    // On PostgreSQL a tick sees 10,000 changes at most.
    while !admitter.admit(now(), RATES + BUDGET).unwrap().granted.is_empty() {}
    let narrow = |n: usize| {
        let task = NewTask::new(key("narrow", n)).priority(9);
        match scenario {
            Scenario::FullPool => task.pool("full".try_into().unwrap()),
            Scenario::TooBig => task.pool("half".try_into().unwrap()).pool_slots(8),
            Scenario::TwoPools => in_pool(n).priority(9).also("full".try_into().unwrap(), 1),
            Scenario::Queues => {
                in_pool(n).priority(9).queue(format!("queue-{}", n % QUEUES).as_str().try_into().unwrap())
            }
            Scenario::Rates => in_pool(n).priority(9).limit(custom("rated", n % RATES)),
            Scenario::FullLimit => {
                task.pool(pool(n % POOLS).as_str().try_into().unwrap()).limit(workflow.clone())
            }
            _ => task
                .pool(pool(n % POOLS).as_str().try_into().unwrap())
                .not_before(now() + Duration::from_secs(604_800)),
        }
    };
    put(&**store, (0..size).map(|n| if n % 10 == 0 { in_pool(size + n / 10) } else { narrow(n) }));
}

fn admitter(store: &Arc<dyn Store>, lease: u64) -> Admitter {
    Admitter::new(store.clone(), "bench".try_into().unwrap())
        .budget(usize::MAX)
        .lease(Duration::from_secs(lease))
}

/// Makes granted tasks ready again, in their old places.
fn give_back(store: &dyn Store, leases: &[LeaseRef]) {
    let finishes: Vec<Finish> = leases.iter().map(|lease| Finish::new(*lease, Outcome::GivenBack)).collect();
    store.write(|tx| tx.finish(now(), &finishes)).unwrap();
}

fn timed(name: &str, times: u64, mut once: impl FnMut() -> Duration) -> Duration {
    let samples: Vec<Duration> = (0..times).map(|_| once()).collect();
    let seconds = samples.iter().map(Duration::as_secs_f64);
    SAMPLES.lock().unwrap().entry(name.to_owned()).or_default().extend(seconds);
    samples.into_iter().sum()
}

/// Measures for this long, or only shows that it runs if the backlogs are capped to the smallest size.
fn measuring() -> Duration {
    if most() < SIZES[1] { Duration::from_millis(50) } else { Duration::from_secs(3) }
}

fn most() -> usize {
    std::env::var("STATIONMASTER_BENCH_MOST").map_or(usize::MAX, |text| text.parse().unwrap())
}

/// Returns how long a tick with a budget of 512 took, and how many tasks it granted, which are ready again.
fn tick(store: &Arc<dyn Store>, admitter: &mut Admitter) -> (Duration, usize) {
    let began = Instant::now();
    let granted = black_box(admitter.admit(now(), BUDGET).unwrap().granted);
    let took = began.elapsed();
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    give_back(&**store, &leases);
    (took, leases.len())
}

fn ticks(criterion: &mut Criterion, backend: &str, open: &dyn Fn() -> Arc<dyn Store>) {
    for (name, scenario) in SCENARIOS {
        let mut group = criterion.benchmark_group(format!("{backend}/{name}"));
        group.sample_size(10).warm_up_time(measuring() / 6).measurement_time(measuring());
        for size in SIZES.into_iter().filter(|size| *size <= most()) {
            let filled: std::cell::OnceCell<Arc<dyn Store>> = std::cell::OnceCell::new();
            group.bench_with_input(BenchmarkId::from_parameter(size), &size, |bench, size| {
                let expected = if scenario.is_open() { BUDGET } else { (size / 10).min(POOLS * 10) };
                let admitter = |store: &Arc<dyn Store>| match scenario {
                    Scenario::Queues => admitter(store, 3600).serves([QueueName::default_queue()]),
                    _ => admitter(store, 3600),
                };
                let store = filled.get_or_init(|| {
                    let store = open();
                    fill(&store, scenario, *size);
                    // What only the first ticks do: on PostgreSQL each adds up some of what was enqueued, and each puts
                    // some of what it refuses to sleep.
                    let mut first = admitter(&store);
                    while first.admit(now(), 0).unwrap().next_due == Some(now()) {}
                    let most = 10 + size / 1000;
                    assert!((0..most).any(|_| tick(&store, &mut first).1 == expected));
                    store
                });
                let mut admitter = admitter(store);
                bench.iter_custom(|times| {
                    timed(&format!("{backend}/{name}/{size}"), times, || {
                        let (took, granted) = tick(store, &mut admitter);
                        assert_eq!(granted, expected);
                        took
                    })
                });
            });
        }
        group.finish();
    }
}

/// Ticks until nothing more is admitted.
fn drain(
    criterion: &mut Criterion,
    name: &str,
    (waiting, slots, expected): (usize, Slots, usize),
    open: &dyn Fn() -> Arc<dyn Store>,
) {
    if waiting > most() {
        return;
    }
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(1));
    group.throughput(criterion::Throughput::Elements(expected as u64));
    group.bench_function(BenchmarkId::from_parameter(waiting), |bench| {
        bench.iter_custom(|times| {
            timed(name, times, || {
                let store = open();
                pools(&*store, POOLS, slots);
                let task = |n: usize| {
                    NewTask::new(key("wide", n)).pool(pool(n % POOLS).as_str().try_into().unwrap())
                };
                put(&*store, (0..waiting).map(task));
                let mut admitter = admitter(&store, 3600);
                let mut admitted = 0;
                let began = Instant::now();
                loop {
                    let granted = admitter.admit(now(), BUDGET).unwrap().granted.len();
                    if granted == 0 {
                        break;
                    }
                    admitted += granted;
                }
                let took = began.elapsed();
                assert_eq!(admitted, expected);
                took
            })
        });
    });
    group.finish();
}

#[cfg(feature = "sqlite")]
mod on_sqlite {
    use super::*;
    use stationmaster::store::Durability;
    use stationmaster::store::SqliteStore;
    use stationmaster::store::sqlite::SqliteOptions;
    use stationmaster::store::sqlite::rusqlite::{Connection, params};
    use std::path::{Path, PathBuf};

    pub fn open_at(path: &Path) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(path, SqliteOptions::new().durability(Durability::Process)).unwrap())
    }

    /// Opens one new file after another.
    pub fn opener(dir: &Path) -> impl Fn() -> Arc<dyn Store> + use<> {
        let (dir, next) = (dir.to_owned(), std::cell::Cell::new(0));
        move || {
            next.set(next.get() + 1);
            open_at(&dir.join(format!("{}.db", next.get())))
        }
    }

    /// The state changes of a tick of `open`, by hand: 512 tasks, 10 pools, their lanes, one request.
    pub fn raw_updates(criterion: &mut Criterion, dir: &Path) {
        let mut group = criterion.benchmark_group("sqlite/raw_updates");
        group.sample_size(10).warm_up_time(measuring() / 6).measurement_time(measuring());
        for size in SIZES.into_iter().filter(|size| *size <= most()) {
            let path: PathBuf = dir.join(format!("raw-{size}.db"));
            group.bench_with_input(BenchmarkId::from_parameter(size), &size, |bench, size| {
                let is_new = !path.exists();
                let store = open_at(&path);
                if is_new {
                    fill(&store, Scenario::Open, *size);
                }
                let conn = Connection::open(&path).unwrap();
                conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
                conn.pragma_update(None, "cache_size", -32_768).unwrap();
                bench.iter_custom(|times| {
                    timed(&format!("sqlite/raw_updates/{size}"), times, || {
                        let admission = admitter(&store, 3600).admit(now(), BUDGET).unwrap();
                        let leases: Vec<LeaseRef> =
                            admission.granted.iter().map(|task| task.lease_ref()).collect();
                        give_back(&*store, &leases);
                        let ids: Vec<i64> = leases.iter().map(|lease| lease.id.0).collect();
                        let took = by_hand(&conn, &ids);
                        let again: Vec<LeaseRef> =
                            leases.iter().map(|lease| LeaseRef::new(lease.id, lease.epoch + 1)).collect();
                        give_back(&*store, &again);
                        took
                    })
                });
            });
        }
        group.finish();
    }

    fn by_hand(conn: &Connection, ids: &[i64]) -> Duration {
        let began = Instant::now();
        let mut lanes: BTreeMap<i64, i64> = BTreeMap::new();
        conn.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
        {
            let mut grant = conn
                .prepare_cached(
                    "UPDATE sm_task SET state = 1, epoch = epoch + 1, attempt = attempt + 1, held_slots = slots,
                     holder = ?2, expires_at = ?3, queued_at = ?4 WHERE no = ?1 AND state = 0 RETURNING lane",
                )
                .unwrap();
            for id in ids {
                let lane: i64 =
                    grant.query_row(params![id, "bench", 9_i64, 8_i64], |row| row.get(0)).unwrap();
                *lanes.entry(lane).or_default() += 1;
            }
            let mut lane =
                conn.prepare_cached("UPDATE sm_lane SET ready = ready - ?2 WHERE no = ?1").unwrap();
            let mut pool = conn
                .prepare_cached(
                    "UPDATE sm_pool SET used = used + ?2 WHERE name = (SELECT pool FROM sm_lane WHERE no = ?1)
                     AND used + ?2 <= slots",
                )
                .unwrap();
            for (id, tasks) in &lanes {
                lane.execute([id, tasks]).unwrap();
                pool.execute([id, tasks]).unwrap();
            }
            conn.prepare_cached(
                "INSERT INTO sm_request (id, at, grants) VALUES (hex(randomblob(16)), ?1, ?2)",
            )
            .unwrap()
            .execute(params![8_i64, format!("{ids:?}")])
            .unwrap();
        }
        conn.prepare_cached("COMMIT").unwrap().execute([]).unwrap();
        began.elapsed()
    }
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use stationmaster::store::postgres::{PostgresOptions, Schema};
    use stationmaster::store::{Durability, PostgresStore};

    /// Opens one new schema after another. The server drops none of them.
    pub fn opener(url: String) -> impl Fn() -> Arc<dyn Store> {
        let next = std::cell::Cell::new(0);
        move || {
            next.set(next.get() + 1);
            let schema = Schema::new(format!("sm_admission_{}_{}", std::process::id(), next.get())).unwrap();
            let options = PostgresOptions::new().schema(schema).durability(Durability::Process);
            Arc::new(PostgresStore::connect(&url, options).unwrap())
        }
    }
}

fn median(name: &str) -> Option<f64> {
    let mut samples = SAMPLES.lock().unwrap().get(name)?.clone();
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

fn print_ratios() {
    println!("\nratios of medians of this run:");
    for backend in ["memory", "sqlite", "postgres"] {
        for (name, _) in SCENARIOS {
            let at = |size: usize| median(&format!("{backend}/{name}/{size}"));
            let largest = SIZES.into_iter().rfind(|size| *size > 1_000 && at(*size).is_some());
            if let (Some(small), Some((size, large))) =
                (at(1_000), largest.and_then(|size| Some((size, at(size)?))))
            {
                let (small_us, large_us) = (small * 1e6, large * 1e6);
                println!(
                    "  {backend}/{name}: {small_us:.0} us at 1k, {large_us:.0} us at {size}: {:.2} times (bar 2)",
                    large / small
                );
            }
        }
    }
    for size in SIZES {
        if let (Some(tick), Some(raw)) =
            (median(&format!("sqlite/open/{size}")), median(&format!("sqlite/raw_updates/{size}")))
        {
            println!("  sqlite/open to the bare state changes at {size}: {:.2} times (bar 2.5)", tick / raw);
        }
    }
    if let Some(seconds) = median("memory/drain") {
        println!("  memory/drain: {:.2} million admissions a second (bar 1)", 1.0 / seconds);
    }
    for (name, admitted) in [("sqlite/drain_10k", 1_280.0), ("sqlite/drain_50k_unlimited", 50_000.0)] {
        if let Some(seconds) = median(name) {
            println!("  {name}: {:.0} ms, {:.0} admissions a second", seconds * 1e3, admitted / seconds);
        }
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let memory: &dyn Fn() -> Arc<dyn Store> = &|| Arc::new(MemoryStore::new());
    ticks(&mut criterion, "memory", memory);
    drain(&mut criterion, "memory/drain", (1_000_000, Slots::Unlimited, 1_000_000), memory);
    #[cfg(feature = "sqlite")]
    {
        let dir = tempfile::tempdir().unwrap();
        let open = on_sqlite::opener(dir.path());
        ticks(&mut criterion, "sqlite", &open);
        on_sqlite::raw_updates(&mut criterion, dir.path());
        drain(&mut criterion, "sqlite/drain_10k", (10_000, Slots::Limited(128), 1_280), &open);
        drain(&mut criterion, "sqlite/drain_50k_unlimited", (50_000, Slots::Unlimited, 50_000), &open);
    }
    #[cfg(feature = "postgres")]
    if let Ok(url) = std::env::var("STATIONMASTER_TEST_POSTGRES") {
        ticks(&mut criterion, "postgres", &on_postgres::opener(url));
    }
    criterion.final_summary();
    print_ratios();
}
