//! Several processes work on one SQLite file at once; what each did is checked afterwards.
//!
//! `STATIONMASTER_CONTENTION_SECONDS` sets how long each test runs (10 without it).
#![cfg(all(feature = "sqlite", feature = "testing"))]

#[allow(dead_code, reason = "each test binary uses its own part")]
mod respawn;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use respawn::{Respawned, say};
use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::lifecycle::{Finish, Finished, enqueue, finish, renew};
use stationmaster::service::{Admitter, AdmitterOptions, Reaper, ReaperOptions, Service};
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use stationmaster::store::{Moved, StoreExt};
use stationmaster::task::LeaseLoss;
use stationmaster::testing::history::{Event, Grant, History, LeaseId, Operation, Summary};
use stationmaster::time::micros;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskNo};

const POOLS: [(&str, u32); 3] = [("one", 1), ("three", 3), ("sixteen", 16)];

fn seconds() -> u64 {
    std::env::var("STATIONMASTER_CONTENTION_SECONDS").map_or(10, |text| text.parse().unwrap())
}

/// Microseconds of a clock that all processes of the machine share.
fn instant() -> u64 {
    micros(SystemClock.now()).unsigned_abs()
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::new().synchronous(Synchronous::Normal)).unwrap()
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Mood {
    /// Every lease is long and is given back.
    Calm,
    /// Leases are short, some are left to expire, pools are resized, processes are killed.
    Wild,
}

impl Mood {
    fn lease(self) -> Duration {
        match self {
            Self::Calm => Duration::from_secs(600),
            Self::Wild => Duration::from_millis(40),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Orders {
    name: String,
    path: std::path::PathBuf,
    seed: u64,
    micros: u64,
    mood: Mood,
}

/// A line of a child's diary: written before a call, and again after it.
#[derive(Serialize, Deserialize)]
struct Line {
    call: u64,
    at: u64,
    returned: bool,
    operation: Operation,
}

struct Worker {
    orders: Orders,
    store: Arc<SqliteStore>,
    admitter: Admitter,
    reaper: Reaper,
    random: Random,
    calls: u64,
    held: Vec<LeaseRef>,
}

impl Worker {
    /// Makes a call between two lines of the diary.
    fn call<T>(&mut self, asked: Operation, call: impl FnOnce(&mut Self) -> (T, Operation)) -> T {
        let id = self.calls;
        self.calls += 1;
        let line = |returned, operation| Line { call: id, at: instant(), returned, operation };
        say(&serde_json::to_string(&line(false, asked)).unwrap());
        let (answer, operation) = call(self);
        say(&serde_json::to_string(&line(true, operation)).unwrap());
        answer
    }

    fn enqueue(&mut self, round: u64) {
        let tasks: Vec<NewTask> = (0..6_u64)
            .map(|n| {
                let (pool, slots) = POOLS[n as usize % 3];
                let key =
                    TaskKey::new("contention", &self.orders.name, round.to_string(), n.to_string()).unwrap();
                NewTask::new(key)
                    .pool(pool.try_into().unwrap())
                    .pool_slots((1 + self.random.below(5) as u32).min(slots))
                    .priority(self.random.below(2) as i32)
                    .lease_loss(LeaseLoss::Requeue { at_most: u32::MAX })
            })
            .collect();
        self.store.write(|tx| enqueue(tx, SystemClock.now(), &tasks)).unwrap();
    }

    fn admit(&mut self) {
        let granted = self.call(Operation::Admit(vec![]), |me| {
            let granted = me.admitter.admit(SystemClock.now(), 6).unwrap().granted;
            let grants = granted.iter().map(|task| Grant {
                task: task.no.0,
                epoch: task.epoch,
                pool: task.lane.pool.to_string(),
                slots: task.lane.slots,
                expires_at: micros(task.lease.as_ref().unwrap().expires_at).unsigned_abs(),
            });
            let grants = Operation::Admit(grants.collect());
            (granted, grants)
        });
        self.held.extend(granted.iter().map(|task| task.lease_ref()));
    }

    fn renew(&mut self) {
        let (held, length) = (self.held.clone(), self.orders.mood.lease());
        let now = SystemClock.now();
        let until = micros(now + length).unsigned_abs();
        let kept = self.call(Operation::Renew(ids(&held), until), |me| {
            let moved = me.store.write(|tx| renew(tx, now, length, &held)).unwrap();
            let kept: Vec<LeaseRef> = held
                .iter()
                .zip(moved)
                .filter(|(_, moved)| *moved == Moved::Yes)
                .map(|(lease, _)| *lease)
                .collect();
            let operation = Operation::Renew(ids(&kept), until);
            (kept, operation)
        });
        self.held = kept;
    }

    fn finish(&mut self) {
        let held = std::mem::take(&mut self.held);
        let mood = self.orders.mood;
        self.call(Operation::End(ids(&held)), |me| {
            let finishes: Vec<Finish> = held.iter().map(|lease| Finish::success(*lease)).collect();
            let finished = me.store.write(|tx| finish(tx, SystemClock.now(), &finishes)).unwrap();
            let accepted = |finished: &Finished| *finished != Finished::Stale;
            assert!(mood == Mood::Wild || finished.iter().all(accepted), "a lease was lost");
            let ended: Vec<LeaseRef> = held
                .iter()
                .zip(&finished)
                .filter(|(_, done)| accepted(done))
                .map(|(lease, _)| *lease)
                .collect();
            ((), Operation::End(ids(&ended)))
        });
    }

    fn reap(&mut self) {
        self.call(Operation::Reap(vec![]), |me| {
            let reaped = me.reaper.tick(SystemClock.now()).unwrap().reaped;
            let leases: Vec<LeaseRef> = reaped.iter().map(|reaped| reaped.task.lease_ref()).collect();
            ((), Operation::Reap(ids(&leases)))
        });
    }

    fn resize(&mut self) {
        let (pool, slots) = POOLS[self.random.below(3) as usize];
        let slots = 1 + self.random.below(u64::from(slots) + 4) as u32;
        let operation = Operation::Resize(pool.into(), Some(slots));
        self.call(operation.clone(), |me| {
            let spec = PoolSpec::new(pool, Slots::Limited(slots)).unwrap();
            me.store.write(|tx| Ok(tx.put_pools(std::slice::from_ref(&spec))?)).unwrap();
            ((), operation)
        });
    }

    fn work(&mut self) {
        let end = Instant::now() + Duration::from_micros(self.orders.micros);
        let mut round = 0;
        while Instant::now() < end {
            round += 1;
            self.enqueue(round);
            self.admit();
            std::thread::sleep(Duration::from_micros(self.random.below(900)));
            if self.orders.mood == Mood::Wild {
                match self.random.below(12) {
                    0 => self.held.clear(),
                    1 | 2 => self.renew(),
                    3 => self.resize(),
                    4 | 5 => self.reap(),
                    // Holds them past their expiry, and tries to use them.
                    6 => std::thread::sleep(self.orders.mood.lease() * 2),
                    _ => {}
                }
            }
            self.finish();
        }
    }
}

fn ids(leases: &[LeaseRef]) -> Vec<LeaseId> {
    leases
        .iter()
        .map(|LeaseRef { no: TaskNo(task), epoch, .. }| LeaseId { task: *task, epoch: *epoch })
        .collect()
}

/// What a child does. Any error of the store ends it, and so fails the test: none is retried here.
#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    let orders: Orders = serde_json::from_str(&argument).unwrap();
    let store = Arc::new(open(&orders.path));
    let options = AdmitterOptions::default().lease(orders.mood.lease());
    let name = orders.name.as_str().try_into().unwrap();
    let mut worker = Worker {
        admitter: Admitter::new(store.clone(), name, options).unwrap(),
        reaper: Reaper::new(store.clone(), ReaperOptions::default()),
        random: Random(orders.seed),
        calls: 0,
        held: Vec::new(),
        orders,
        store,
    };
    say("ready");
    worker.work();
}

/// The events of one child: a line before a call and none after it means that the child died in it.
fn events(lines: &[String]) -> Vec<Event> {
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let mut calls: HashMap<u64, Event> = HashMap::new();
    for line in lines {
        if line.returned {
            if let Some(event) = calls.get_mut(&line.call) {
                event.returned = Some(line.at);
                event.operation = line.operation;
            }
        } else {
            calls.insert(line.call, Event { invoked: line.at, returned: None, operation: line.operation });
        }
    }
    calls.into_values().collect()
}

struct Outcome {
    summary: Summary,
    /// Grants by place.
    grants: Vec<usize>,
    kills: usize,
}

/// Runs this many processes for the test's time. In a wild mood, kills one at random every now and then and puts another in
/// its place.
fn run(processes: usize, mood: Mood) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("contention.db");
    let store = open(&path);
    let pools = POOLS.map(|(name, slots)| PoolSpec::new(name, Slots::Limited(slots)).unwrap());
    store.write(|tx| Ok(tx.put_pools(&pools)?)).unwrap();

    let end = Instant::now() + Duration::from_secs(seconds());
    let mut spawned = 0;
    let mut spawn = |left: Duration| {
        spawned += 1;
        let orders = Orders {
            name: format!("p{spawned}"),
            path: path.clone(),
            seed: spawned,
            micros: left.as_micros() as u64,
            mood,
        };
        Respawned::new("child", &serde_json::to_string(&orders).unwrap())
    };
    let mut places: Vec<Respawned> = (0..processes).map(|_| spawn(Duration::from_secs(seconds()))).collect();
    let mut said: Vec<Vec<Vec<String>>> = (0..processes).map(|_| Vec::new()).collect();
    let mut random = Random(u64::from(std::process::id()));
    let mut kills = 0;
    while mood == Mood::Wild && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20 + random.below(120)));
        let place = random.below(processes as u64) as usize;
        let next = spawn(end.saturating_duration_since(Instant::now()));
        said[place].push(std::mem::replace(&mut places[place], next).kill());
        kills += 1;
    }
    for (place, child) in places.into_iter().enumerate() {
        said[place].push(child.join());
    }

    let mut history = History::new(POOLS.map(|(name, slots)| (name, Some(slots))));
    let mut grants = vec![0; processes];
    for (place, lives) in said.iter().enumerate() {
        for event in lives.iter().flat_map(|lines| events(lines)) {
            if let Operation::Admit(granted) = &event.operation {
                grants[place] += granted.len();
            }
            history.push(event);
        }
    }
    let summary = history.check().unwrap();
    let found = store.read(|tx| Ok(tx.audit()?)).unwrap();
    assert!(found.is_empty(), "{found:?}");
    Outcome { summary, grants, kills }
}

#[test]
fn four_processes_never_oversubscribe() {
    let Outcome { summary, grants, .. } = run(4, Mood::Calm);
    println!("4 processes, {} s: {summary:?}, grants {grants:?}, 0 violations, 0 errors", seconds());
    assert_eq!(summary.grants, summary.ended);
    assert!(grants.iter().all(|grants| *grants > 0), "a process was starved: {grants:?}");
}

#[test]
fn eight_processes_survive_kills_resizes_and_expiries() {
    let Outcome { summary, grants, kills } = run(8, Mood::Wild);
    println!(
        "8 processes, {} s, {kills} kills: {summary:?}, grants {grants:?}, 0 violations, 0 errors",
        seconds()
    );
    let (least, most) = (grants.iter().min().unwrap(), grants.iter().max().unwrap());
    println!("slowest process: {:.2} of the fastest", *least as f64 / *most as f64);
    assert!(summary.reaped > 0 && summary.unknown > 0, "the wild mood was tame");
    assert!(grants.iter().all(|grants| *grants > 0), "a process was starved: {grants:?}");
}
