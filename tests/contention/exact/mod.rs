//! Capacity is exact in every snapshot, whatever hosts keep open, roll back or leave behind.
//!
//! Eight processes tick, and end their tasks in transactions of their own. They are killed and stopped, and the
//! server's processes behind them are terminated. Others look meanwhile. The server is the test's own, because one must
//! be set up for transactions that are prepared.

pub mod host;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::Result;
use stationmaster::ops::{Finish, Mark};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::PostgresStore;
use stationmaster::task::TaskState;
use stationmaster::testing::history::{History, LeaseId, Summary};
use stationmaster::{TaskId, TaskKey};

use self::host::Orders;
use self::watch::{Seen, Watch};
use crate::Errand;
use crate::place::postgres::{Database, Level, Owner};
use crate::postgres_server::{OwnServer, Plain, with};
use crate::respawn::Respawned;
use crate::run::{errors, events};
use crate::worker::{Line, Random};

const PROCESSES: usize = 8;

/// The first four change their sizes. The last one and the limits never do.
const POOLS: [(&str, u32); 5] = [("one", 1), ("three", 3), ("sixteen", 16), ("rare", 2), ("fixed", 5)];
const LIMITS: [(&str, u32); 2] = [("few", 2), ("many", 12)];
/// The pool whose slots sensors keep.
const KEEPING: &str = "three";

/// Stops a process, so that it neither reads nor writes, or lets it go on.
fn signal(process: &Respawned, signal: Signal) {
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

fn pool(name: &str, slots: u32) -> PoolSpec {
    let mut spec = PoolSpec::new(name, Slots::Limited(slots)).unwrap();
    spec.sensing_keeps_slots = name == KEEPING;
    spec
}

/// Defines the pools and limits, this many times as large.
fn define(store: &PostgresStore, times: u32) -> Result<()> {
    let limits = LIMITS.map(|(key, max)| LimitSpec::new(key.try_into().unwrap(), max * times).unwrap());
    store.write(|tx| {
        tx.define(POOLS.map(|(name, slots)| pool(name, slots * times)), IfExists::Replace)?;
        tx.define(&limits, IfExists::Replace).map(drop)
    })
}

/// What processes must have done before a run is over. A machine that is busy needs longer for it.
const DEEDS: [&str; 10] = [
    "succeeded",
    "reaped",
    "committed",
    "rolled back",
    "rolled back to a savepoint",
    "prepared and committed",
    "prepared and rolled back",
    "prepared and left",
    "pools deleted",
    "pools defined",
];
const PATIENCE: Duration = Duration::from_secs(120);

/// A process, and what it said so far.
struct Child {
    process: Respawned,
    lines: Vec<String>,
}

impl Child {
    /// Adds what it did.
    fn tell(&mut self, did: &mut BTreeMap<String, usize>) {
        self.lines.extend(self.process.said());
        for (what, count) in errors(&self.lines) {
            *did.entry(what).or_default() += count;
        }
    }

    fn kill(mut self) -> Vec<String> {
        self.lines.extend(self.process.kill());
        self.lines
    }
}

/// What was done to the processes.
#[derive(Debug, Default)]
struct Trouble {
    kills: usize,
    terminations: i64,
    stops: usize,
}

impl Trouble {
    fn has_all(&self) -> bool {
        self.kills > 0 && self.terminations > 0 && self.stops > 0
    }
}

/// What the processes said.
struct Told {
    history: History,
    did: BTreeMap<String, usize>,
    succeeded: BTreeSet<LeaseId>,
    cleared: HashSet<i64>,
}

impl Told {
    fn new() -> Self {
        let mut history = History::new(POOLS.map(|(name, slots)| (name, Some(slots))));
        history.keeps_slots(KEEPING);
        Self { history, did: BTreeMap::new(), succeeded: BTreeSet::new(), cleared: HashSet::new() }
    }

    fn hear(&mut self, lines: &[String]) {
        for (what, count) in errors(lines) {
            *self.did.entry(what).or_default() += count;
        }
        for line in lines.iter().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            match line {
                Line::Succeeded(leases) => self.succeeded.extend(leases),
                Line::Cleared(tasks) => self.cleared.extend(tasks),
                Line::Call { .. } | Line::Errors(_) => {}
            }
        }
        events(lines).into_iter().for_each(|event| self.history.push(event));
    }

    /// A task that surely succeeded is as it was left, or forgotten, unless it may have been cleared.
    fn check_ends(&self, store: &PostgresStore) -> usize {
        let kept: Vec<&LeaseId> =
            self.succeeded.iter().filter(|lease| !self.cleared.contains(&lease.task)).collect();
        let numbers: Vec<TaskId> = kept.iter().map(|lease| TaskId(lease.task)).collect();
        let tasks = store.read(|tx| tx.tasks_by_id(&numbers)).unwrap();
        for (lease, task) in kept.iter().zip(tasks) {
            let Some(task) = task else { continue };
            assert_eq!((task.state, task.epoch), (TaskState::Success, lease.epoch), "{lease:?}: {task:?}");
        }
        kept.len()
    }
}

/// Lets processes work for a while whose hosts' transactions are at these levels, one process after the other.
fn run(server: &OwnServer, schema: &str, levels: &[Level], length: Duration) -> (Summary, Seen) {
    let database = |level| Database {
        url: with(&server.url(), &format!("application_name={schema}")),
        schema: schema.to_owned(),
        level,
        owner: Owner::Host,
    };
    let options = database(Level::ReadCommitted).options();
    let store = Arc::new(PostgresStore::connect(&server.url(), options).unwrap());
    define(&store, 1).unwrap();
    let watch = Watch::start(&server.url(), schema);

    let end = Instant::now() + length;
    let mut spawned = 0;
    let mut spawn = |place: usize| {
        spawned += 1;
        let orders = Orders {
            name: format!("p{spawned}"),
            database: database(levels[place % levels.len()]),
            seed: spawned,
        };
        let process = Respawned::new("child", &serde_json::to_string(&Errand::Host(orders)).unwrap());
        Child { process, lines: Vec::new() }
    };
    let mut places: Vec<Child> = (0..PROCESSES).map(&mut spawn).collect();
    let (mut told, mut trouble) = (Told::new(), Trouble::default());
    let mut random = Random(u64::from(std::process::id()));
    let plain = Plain::connect(&server.url());
    let terminate = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
         WHERE application_name = '{schema}' ORDER BY random() LIMIT 1) one"
    );
    let mut stopped: Vec<(usize, Instant)> = Vec::new();
    let is_over = |did: &BTreeMap<String, usize>, trouble: &Trouble| {
        let now = Instant::now();
        let is_loaded = trouble.has_all() && DEEDS.iter().all(|what| did.contains_key(*what));
        now >= end && is_loaded || now >= end + PATIENCE
    };
    while !watch.has_failed() {
        let mut did = told.did.clone();
        places.iter_mut().for_each(|child| child.tell(&mut did));
        if is_over(&did, &trouble) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20 + random.below(100)));
        stopped.retain(|(place, until)| {
            let stays = Instant::now() < *until;
            if !stays {
                signal(&places[*place].process, Signal::CONT);
            }
            stays
        });
        places.iter_mut().for_each(|child| child.process.must_live());
        let place = random.below(PROCESSES as u64) as usize;
        match random.below(8) {
            0 => {
                let next = spawn(place);
                told.hear(&std::mem::replace(&mut places[place], next).kill());
                stopped.retain(|(other, _)| *other != place);
                trouble.kills += 1;
            }
            1 => trouble.terminations += plain.number(&terminate),
            2 | 3 if stopped.iter().all(|(other, _)| *other != place) => {
                // Sometimes for longer than a tick may stand still.
                let most = if random.below(40) == 0 { 4_000 } else { 100 };
                signal(&places[place].process, Signal::STOP);
                stopped.push((place, Instant::now() + Duration::from_millis(random.below(most))));
                trouble.stops += 1;
            }
            _ => {}
        }
    }
    places.into_iter().for_each(|child| told.hear(&child.kill()));
    // The server may still be working on what they sent last.
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'");
    let killed = Instant::now();
    while plain.number(&sessions) > 0 {
        assert!(killed.elapsed() < PATIENCE, "sessions of dead processes go on");
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = watch.stop();
    let summary = told.history.check().unwrap_or_else(|violation| panic!("{violation}"));
    let kept = told.check_ends(&store);
    drain(&store, &Plain::connect(&server.url()), schema);
    println!(
        "{PROCESSES} processes, hosts at {levels:?}, {length:?}: {summary:?}, {trouble:?}, {:?}, {kept} tasks ended once, {seen:?}, \
         0 violations",
        told.did
    );
    for what in DEEDS {
        assert!(told.did.contains_key(what), "none {what}: {:?}", told.did);
    }
    assert!(trouble.has_all(), "{trouble:?}");
    (summary, seen)
}

/// Ends everything that the processes left behind. Then nothing is counted any more.
fn drain(store: &Arc<PostgresStore>, plain: &Plain, schema: &str) {
    define(store, 1_000).unwrap();
    let mut admitter = Admitter::new(store.clone(), "last".try_into().unwrap());
    let mut upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO);
    let count = |from: &str| {
        plain.number(&format!("SELECT count(*) FROM {from}").replace("sm.", &format!("{schema}.")))
    };
    let began = Instant::now();
    while count(
        "(SELECT no FROM sm.ready UNION ALL SELECT no FROM sm.lease UNION ALL SELECT no FROM sm.idle WHERE state < 6) left_over",
    ) > 0
    {
        assert!(began.elapsed() < Duration::from_secs(120), "tasks are passed over");
        let now = SystemClock.now();
        upkeep.tick(now).unwrap();
        let granted = admitter.tick(now).unwrap().granted;
        let ends: Vec<Finish> = granted.iter().map(|task| Finish::success(task.lease_ref())).collect();
        store.write(|tx| tx.finish(now, &ends)).unwrap();
        let waiting = plain.ask(&format!("SELECT no FROM {schema}.idle WHERE state = 4"));
        let numbers: Vec<TaskId> =
            waiting.iter().map(|row| TaskId(row[0].as_deref().unwrap().parse().unwrap())).collect();
        store
            .write(|tx| {
                let keys: Vec<TaskKey> =
                    tx.tasks_by_id(&numbers)?.into_iter().flatten().map(|task| task.key).collect();
                let marks: Vec<Mark> =
                    keys.into_iter().map(|key| Mark::new(key, TaskState::Skipped, "over")).collect();
                tx.mark(now, &marks)
            })
            .unwrap();
    }
    admitter.admit(SystemClock.now(), 1).unwrap();
    admitter.admit(SystemClock.now(), 1).unwrap();
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    for table in ["delta", "lane", "lane_use", "pool_use", "limit_use"] {
        assert_eq!(count(&format!("sm.{table}")), 0, "{table} is not empty, although all tasks have ended");
    }
}

/// I1, I2 and I5 of the protocol.
#[test]
fn capacity_is_exact_beside_open_hosts() {
    let Some(server) = OwnServer::start() else { return };
    match std::env::var("STATIONMASTER_CONTENTION_SECONDS") {
        Err(_) => drop(run(&server, "mixed", &Level::ALL, Duration::from_secs(6))),
        Ok(seconds) => {
            for level in Level::ALL {
                let schema = format!("{level:?}").to_lowercase();
                run(&server, &schema, &[level], Duration::from_secs(seconds.parse().unwrap()));
            }
        }
    }
}
