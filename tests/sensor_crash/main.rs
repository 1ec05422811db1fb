//! Processes that poke are killed at random moments; what they did is checked afterwards, from what they wrote down and from
//! the feed.
//!
//! `STATIONMASTER_SENSOR_KILLS` sets how many kills there are (5 without it on SQLite, 2 on PostgreSQL). With it, the time until
//! every sensor is poked again is held to its bound; without it, it is only told, since the short form runs beside other tests.
//! `STATIONMASTER_SENSOR_FLEET` sets how many sensors there are on PostgreSQL (1,000 without it).
#![cfg(all(feature = "testing", any(feature = "sqlite", feature = "postgres")))]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../place/mod.rs"]
mod place;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../respawn/mod.rs"]
mod respawn;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use place::{Commits, Place};
use respawn::{Respawned, say};
use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::fingerprint::Fingerprint;
use stationmaster::ops::Registered;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{EndReason, NewSensor, OnLanded, PokeOutcome, Settings};
use stationmaster::service::{Admitter, PokeRequest, Poker, Service};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::testing::history::pokes::{Answer, Poke, PokeHistory, Record, RegistrationId};
use stationmaster::{NewTask, TaskKey, TaskState};

const KIND: &str = "target";
/// How long a worker sleeps at most between two ticks.
const NAP: Duration = Duration::from_millis(20);
/// One in this many sensors is resumed by its first landing, and waits for a second one.
const TWICE: usize = 5;

/// What is tried.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Fleet {
    sensors: usize,
    groups: usize,
    workers: usize,
    lease: Duration,
    interval: Duration,
}

impl Fleet {
    /// After a worker died, all its sensors are poked again within this.
    fn bound(self) -> Duration {
        self.lease + self.interval
    }

    fn keys(self) -> impl Iterator<Item = TaskKey> {
        (0..self.sensors).map(|n| TaskKey::new("crash", "sensors", "r", format!("t{n}")).unwrap())
    }
}

/// Microseconds of a clock that all processes of the machine share.
fn instant() -> u64 {
    SystemClock.now().as_micros().unsigned_abs()
}

/// What a sensor waits for: until the file is there, or until an instant.
#[derive(Serialize, Deserialize)]
struct Target {
    n: usize,
    lands_at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Orders {
    name: String,
    place: Place,
    fleet: Fleet,
    /// All targets land once this file is there.
    flag: PathBuf,
}

/// A worker: it says when each poke began and returned.
#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    let Orders { name, place, fleet, flag } = serde_json::from_str(&argument).unwrap();
    let poke = move |request: &PokeRequest| {
        let (group, began) = (request.context.as_str(), instant());
        say(&format!("began {began} {} {group}", request.now.as_micros()));
        let target: Target = request.context.decode().unwrap();
        let landed = flag.exists() || target.lands_at.is_some_and(|at| at <= began);
        say(&format!("returned {} {} {group}", instant(), if landed { "landed" } else { "waits" }));
        if landed { PokeOutcome::Landed(None) } else { PokeOutcome::NotYet }
    };
    let mut poker = Poker::new(place.open(Commits::Quick), name.as_str().try_into().unwrap())
        .lease(fleet.lease)
        .min_interval(fleet.interval)
        .shards(NonZeroU32::new(12).unwrap())
        .threads(2)
        .kind(KIND.try_into().unwrap(), poke);
    say("ready");
    loop {
        let report = poker.tick(SystemClock.now()).unwrap();
        let wait = report.next_due.map_or(NAP, |due| due.saturating_duration_since(SystemClock.now()));
        std::thread::sleep(wait.min(NAP));
    }
}

/// Returns what one worker did, as it said itself. The due time of each poke is the instant of the tick that asked for
/// it.
fn pokes(worker: &str, lines: &[String]) -> Vec<Poke> {
    let mut pokes: Vec<Poke> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let at = |text: &str| text.parse::<u64>().unwrap();
        match word {
            "began" => {
                let mut words = rest.splitn(3, ' ');
                let (began, tick, group) =
                    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                open.insert(group, pokes.len());
                pokes.push(Poke::new(worker, group, at(began)).due(at(tick)));
            }
            "returned" => {
                let mut words = rest.splitn(3, ' ');
                let (returned, landed, group) =
                    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                let poke = &mut pokes[open.remove(group).unwrap()];
                poke.returned = Some(at(returned));
                if landed == "landed" {
                    poke.answer = Answer::Ends;
                }
            }
            _ => {}
        }
    }
    pokes
}

/// Makes the fleet, and registers again what was resumed.
struct Host {
    fleet: Fleet,
    store: Arc<dyn Store>,
    admitter: Admitter,
    /// When targets of sensors that wait twice land for the first time.
    first_landings: (u64, u64),
    records: Vec<Record>,
    groups: HashMap<RegistrationId, String>,
    /// The last event that was read.
    heard: u64,
    /// When each group was first seen to have ended.
    ended: HashMap<String, u64>,
}

impl Host {
    fn new(fleet: Fleet, store: Arc<dyn Store>, first_landings: (u64, u64)) -> Self {
        let admitter = Admitter::new(store.clone(), "host".try_into().unwrap())
            .budget(fleet.sensors)
            .lease(Duration::from_secs(600));
        Self {
            fleet,
            store,
            admitter,
            first_landings,
            records: Vec::new(),
            groups: HashMap::new(),
            heard: 0,
            ended: HashMap::new(),
        }
    }

    fn enqueue(&self) {
        let pool = PoolSpec::new("wide", Slots::Unlimited).unwrap();
        let tasks: Vec<NewTask> = self
            .fleet
            .keys()
            .map(|key| NewTask::new(key).pool("wide".try_into().unwrap()).feed(Feed::EndsAndSensors))
            .collect();
        self.store
            .write(|tx| {
                tx.define([&pool], IfExists::Replace)?;
                tx.enqueue(SystemClock.now(), &tasks)
            })
            .unwrap();
    }

    /// Reads what ended, and registers what was resumed.
    fn work(&mut self) {
        let events = self.store.read(|tx| tx.feed(self.heard, usize::MAX)).unwrap();
        let at = instant();
        for event in events {
            assert_eq!(event.reason, Some(EndReason::Landed), "a sensor did not land: {event:?}");
            self.heard = event.seq;
            let id = RegistrationId { task: event.id.0, generation: event.attempt.into() };
            self.ended.entry(self.groups[&id].clone()).or_insert(at);
            self.records.push(Record::Ended { id, at });
        }
        self.register();
        std::thread::sleep(Duration::from_millis(10));
    }

    /// Registers all tasks that are ready.
    fn register(&mut self) -> usize {
        let granted = self.admitter.tick(SystemClock.now()).unwrap().granted;
        if granted.is_empty() {
            return 0;
        }
        let Fleet { groups, interval, .. } = self.fleet;
        let sensors: Vec<NewSensor> = granted
            .iter()
            .map(|task| {
                let n = usize::try_from(task.id.0).unwrap() % groups;
                let waits_twice = n.is_multiple_of(TWICE) && task.attempt == 1;
                let (from, to) = self.first_landings;
                let lands_at = waits_twice.then(|| from + (to - from) * n as u64 / groups as u64);
                let context = PokeContext::of(&Target { n, lands_at }).unwrap();
                let settings = Settings::new(interval, Duration::from_secs(86_400)).unwrap();
                let then = if waits_twice { OnLanded::Resume } else { OnLanded::Succeed };
                NewSensor::new(task.lease_ref(), KIND.try_into().unwrap(), context, settings.on_landed(then))
            })
            .collect();
        let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
        let invoked = instant();
        let registered = self
            .store
            .write(|tx| {
                tx.start(SystemClock.now(), &leases)?;
                tx.register(SystemClock.now(), &sensors)
            })
            .unwrap();
        let returned = Some(instant());
        for registered in registered {
            let Registered::Waiting(sensor) = registered else { panic!("refused: {registered:?}") };
            let id = RegistrationId { task: sensor.id.0, generation: sensor.generation };
            let group = sensor.context.as_str().to_owned();
            self.groups.insert(id, group.clone());
            self.records.push(Record::Registered { id, group, invoked, returned });
        }
        leases.len()
    }
}

/// splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Replaces the tick of each poke by the grid point that it was made for, the last one at or before the tick. A poke may begin
/// after the next grid point, if the machine is busy. Pokes soon after a registration of their group have no due time,
/// because a new sensor's target is poked at once.
fn give_due_times(fleet: Fleet, pokes: &mut [Poke], records: &[Record]) {
    let mut registered: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
    for record in records {
        if let Record::Registered { group, invoked, returned, .. } = record {
            registered.entry(group).or_default().push((*invoked, returned.unwrap_or(u64::MAX)));
        }
    }
    let young = (fleet.lease * 2).as_micros() as u64;
    let interval = fleet.interval.as_micros() as u64;
    for poke in pokes {
        let tick = poke.due.unwrap_or(poke.began);
        let at_once = |(invoked, returned): &(u64, u64)| *invoked <= poke.began && tick <= returned + young;
        let is_at_grid = registered.get(poke.group.as_str()).is_some_and(|all| !all.iter().any(at_once));
        poke.due = poke.due.filter(|_| is_at_grid).map(|tick| {
            let context = PokeContext::from_json(&poke.group).unwrap();
            let phase = Fingerprint::new(&KIND.try_into().unwrap(), &context).0 % interval;
            (tick - phase) / interval
        });
    }
}

/// How long it took after each kill until all groups that then waited were poked again. A kill that another one follows
/// within the bound tells nothing: the heirs may have been its victims.
fn waits(fleet: Fleet, kills: &[u64], pokes: &[Poke], ended: &HashMap<String, u64>) -> Vec<Duration> {
    let bound = fleet.bound().as_micros() as u64;
    let mut began: HashMap<&str, BTreeSet<u64>> = HashMap::new();
    for poke in pokes {
        began.entry(&poke.group).or_default().insert(poke.began);
    }
    let is_alone = |at: usize| kills.get(at + 1).is_none_or(|next| *next > kills[at] + bound);
    let after = |kill: u64| {
        let waited = began.iter().filter_map(|(group, began)| {
            let first = *began.first()?;
            let next = began.range(kill..).next();
            let waits = first < kill && ended.get(*group).is_none_or(|ended| *ended > kill + bound);
            waits.then(|| next.map_or(u64::MAX / 2, |next| next - kill))
        });
        Duration::from_micros(waited.max().unwrap_or(0))
    };
    (0..kills.len()).filter(|at| is_alone(*at)).map(|at| after(kills[at])).collect()
}

/// How many kills were asked for.
fn asked() -> Option<u64> {
    std::env::var("STATIONMASTER_SENSOR_KILLS").ok().map(|text| text.parse().unwrap())
}

fn kill_workers(fleet: Fleet, place: &Place, kills: u64) {
    let dir = tempfile::tempdir().unwrap();
    let flag = dir.path().join("land");
    let store = place.open(Commits::Quick);
    let bound = fleet.bound();
    let micros = bound.as_micros() as u64;
    let from = instant() + micros * 2;
    let mut host = Host::new(fleet, store.clone(), (from, from + kills * micros));
    host.enqueue();
    assert_eq!(host.register(), fleet.sensors);

    let mut spawned = 0;
    let mut spawn = || {
        spawned += 1;
        let name = format!("w{spawned}");
        let orders = Orders { name: name.clone(), place: place.clone(), fleet, flag: flag.clone() };
        (name, Respawned::new("child", &serde_json::to_string(&orders).unwrap()))
    };
    let mut workers: Vec<(String, Respawned)> = (0..fleet.workers).map(|_| spawn()).collect();
    for (_, worker) in &workers {
        assert_eq!(worker.line().as_deref(), Some("ready"));
    }
    std::thread::sleep(fleet.lease * 2);

    let (mut made, mut killed_at) = (Vec::new(), Vec::new());
    let mut seed = u64::from(std::process::id());
    for kill in 0..kills {
        // Three of four kills come alone, one while others still take over.
        let part = bound * (random(&mut seed) % 1_000) as u32 / 2_000;
        let pause = if kill % 4 == 3 { part } else { bound + NAP * 5 + part };
        let until = Instant::now() + pause;
        while Instant::now() < until {
            host.work();
        }
        let victim = random(&mut seed) as usize % fleet.workers;
        killed_at.push(instant());
        let (name, worker) = std::mem::replace(&mut workers[victim], spawn());
        made.extend(pokes(&name, &worker.kill()));
    }
    let calm = Instant::now() + bound * 2;
    while Instant::now() < calm {
        host.work();
    }

    // Everything lands.
    std::fs::write(&flag, "").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60) + fleet.interval * 3;
    let is_end = |state: TaskState| state.is_end();
    let keys: Vec<TaskKey> = fleet.keys().collect();
    loop {
        host.work();
        let tasks = store.read(|tx| tx.tasks(&keys)).unwrap();
        if tasks.iter().flatten().all(|task| is_end(task.state)) {
            assert!(tasks.iter().flatten().all(|task| task.state == TaskState::Success), "a sensor failed");
            break;
        }
        assert!(Instant::now() < deadline, "a sensor is lost: it was not poked after its target landed");
    }
    host.work();
    for (name, worker) in workers {
        made.extend(pokes(&name, &worker.kill()));
    }

    let ends = host.records.iter().filter(|record| matches!(record, Record::Ended { .. })).count();
    assert_eq!(ends, host.groups.len(), "one event for each registration");
    assert!(ends > fleet.sensors, "none was registered twice");
    let mut history = PokeHistory::new();
    host.records.iter().cloned().for_each(|record| history.push(record));
    give_due_times(fleet, &mut made, &host.records);
    let at_due_times = made.iter().filter(|poke| poke.due.is_some()).count();
    assert!(at_due_times * 4 > made.len(), "few pokes have a due time");
    // A worker that stalls in a poke has its lease for no longer than is left for certain when a poke begins.
    let left = fleet.lease.as_micros() as u64 / 6;
    let stalled = |poke: &Poke| poke.returned.is_some_and(|returned| returned - poke.began > left);
    made.iter_mut().filter(|poke| stalled(poke)).for_each(|poke| poke.held_until = Some(poke.began + left));
    made.iter().cloned().for_each(|poke| history.push(Record::PokeOutcome(poke)));
    let summary = history.check().unwrap();
    let found = store.read(|tx| tx.audit()).unwrap();
    assert!(found.is_empty(), "{found:?}");

    let waits = waits(fleet, &killed_at, &made, &host.ended);
    let worst = waits.iter().max().copied().unwrap_or_default();
    println!(
        "{} workers, {} sensors, {kills} kills, {} of them alone: {summary:?}; all poked again after at most {worst:?} (lease and \
         interval: {bound:?})",
        fleet.workers,
        fleet.sensors,
        waits.len(),
    );
    if asked().is_some() {
        // One tick later at most. A shard that is handed on to a worker that joins meanwhile waits once more, and the next
        // kill can take that one; and a machine that is busy with other work may hold up a few. So a share is asked for, of
        // enough kills to have one.
        let in_time = waits.iter().filter(|wait| **wait <= bound + fleet.lease / 3).count();
        if waits.len() >= 10 {
            assert!(in_time * 10 >= waits.len() * 9, "sensors were not poked again in time: {waits:?}");
        }
        assert!(worst <= bound * 2 + Duration::from_secs(1), "after {worst:?}: {waits:?}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn sensors_survive_kills_of_their_workers() {
    let (lease, interval) = (Duration::from_millis(900), Duration::from_millis(600));
    let fleet = Fleet { sensors: 1_000, groups: 600, workers: 3, lease, interval };
    let dir = tempfile::tempdir().unwrap();
    kill_workers(fleet, &Place::Sqlite(dir.path().join("sensors.db")), asked().unwrap_or(5));
}

#[cfg(feature = "postgres")]
#[test]
fn sensors_in_postgres_survive_kills_of_their_workers() {
    use place::postgres::{Database, Level, Owner};
    use scratch::{Scratch, url};

    let sensors =
        std::env::var("STATIONMASTER_SENSOR_FLEET").map_or(1_000, |text| text.parse::<usize>().unwrap());
    // So that each worker makes a few hundred pokes a second at most.
    let interval = Duration::from_millis(600).max(Duration::from_micros(600 * sensors as u64));
    let lease = Duration::from_millis(900).max(interval / 3);
    let fleet = Fleet { sensors, groups: sensors * 3 / 5, workers: 4, lease, interval };
    let scratch = Scratch::new();
    let schema = scratch.0.to_string();
    let place =
        Place::Postgres(Database { url: url(), schema, level: Level::ReadCommitted, owner: Owner::Store });
    kill_workers(fleet, &place, asked().unwrap_or(2));
}
