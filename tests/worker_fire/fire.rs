//! The fire, and what must hold after it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::feed::TaskEvent;
use stationmaster::service::{FeedReader, Service, Upkeep};
use stationmaster::store::{Store, Tx};
use stationmaster::task::{Feed, LeaseLoss};
use stationmaster::{NewTask, Result, TaskKey, TaskState};

use crate::Orders;
use crate::effects::Effects;
use crate::place::{Commits, Place};
use crate::respawn::Respawned;
use crate::worker::{Kind, LEASE, LOST, PLACES, follower};

/// How many processes work.
const WORKERS: usize = 3;
/// As many tasks wait at most.
const BACKLOG: u64 = 200;
/// How often a task of each kind is enqueued, of 40.
const MIX: [(&str, usize); 8] = [
    ("works", 16),
    ("plain", 8),
    ("ends", 8),
    ("fails", 2),
    ("panics", 2),
    ("hangs", 2),
    ("heeds", 1),
    ("ignores", 1),
];
/// How long holders of cancelled tasks have.
const GRACE: Duration = Duration::from_millis(300);
const NAP: Duration = Duration::from_millis(20);
/// A test that waits for longer than this has failed.
const IN_VAIN: Duration = Duration::from_secs(120);

pub enum Database {
    #[cfg(feature = "sqlite")]
    File,
    #[cfg(feature = "postgres")]
    Server(crate::postgres_server::OwnServer),
}

impl Database {
    /// Terminates all connections; returns how many. A file has none.
    fn terminate(&self) -> usize {
        match self {
            #[cfg(feature = "sqlite")]
            Self::File => 0,
            #[cfg(feature = "postgres")]
            Self::Server(server) => {
                let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                crate::postgres_server::Plain::connect(&server.url()).ask(all).len()
            }
        }
    }

    /// Runs this while the server is down, or another writer has the file.
    fn while_down(&self, place: &Place, meanwhile: impl FnOnce()) {
        match (self, place) {
            #[cfg(feature = "sqlite")]
            (Self::File, Place::Sqlite(path)) => {
                let conn = crate::effects::sqlite::connect(path).unwrap();
                conn.busy_timeout(IN_VAIN).unwrap();
                conn.execute_batch("BEGIN IMMEDIATE").unwrap();
                meanwhile();
                conn.execute_batch("ROLLBACK").unwrap();
            }
            #[cfg(feature = "postgres")]
            (Self::Server(server), _) => {
                server.halt();
                meanwhile();
                server.launch();
            }
            #[allow(unreachable_patterns, reason = "with one kind of store")]
            _ => unreachable!(),
        }
    }
}

pub fn task(name: &str) -> NewTask {
    let retry = RetryPolicy::fixed(Duration::from_millis(10)).max_attempts(1_000).build().unwrap();
    NewTask::new(key(name)).retry(retry).lease_loss(LeaseLoss::Requeue { at_most: 1_000 }).feed(Feed::Ends)
}

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

/// What one database is asked to do, as often as it takes.
fn insist<T>(store: &Arc<dyn Store>, mut body: impl FnMut(&mut Tx<'_>) -> Result<T>) -> T {
    let began = Instant::now();
    loop {
        match store.write(&mut body) {
            Ok(done) => return done,
            Err(error) => assert!(began.elapsed() < IN_VAIN, "{error}"),
        }
        std::thread::sleep(NAP);
    }
}

/// Enqueues until it is asked to stop, and cancels what waits for that. Returns the names of the tasks.
fn produce(store: &Arc<dyn Store>, ends: &AtomicBool) -> Vec<String> {
    let (mut names, mut uncancelled): (Vec<String>, Vec<TaskKey>) = (Vec::new(), Vec::new());
    loop {
        let has_ended = ends.load(Ordering::SeqCst);
        let found = insist(store, |tx| tx.tasks(&uncancelled));
        // Most of them while they run, and at the end also those that wait.
        let is_ready = |state: TaskState| state == TaskState::Running || has_ended;
        let ready = found.iter().flatten().filter(|task| is_ready(task.state)).map(|task| task.key.clone());
        let ready: Vec<TaskKey> = ready.collect();
        insist(store, |tx| tx.cancel(SystemClock.now(), GRACE, &ready, "by hand"));
        uncancelled.retain(|key| !ready.contains(key));
        if has_ended {
            return names;
        }
        let open = insist(store, |tx| tx.count_tasks(100_000));
        let open = open.iter().filter(|count| !count.state.is_end()).map(|count| count.tasks).sum::<u64>();
        if open < BACKLOG {
            let kinds = MIX.iter().flat_map(|(kind, often)| std::iter::repeat_n(*kind, *often));
            let new = kinds.enumerate().map(|(at, kind)| format!("{kind}-{}", names.len() + at));
            let new: Vec<String> = new.collect();
            enqueue(store, &new);
            uncancelled.extend(new.iter().filter(|name| waits_for_cancel(name)).map(|name| key(name)));
            names.extend(new);
        }
        std::thread::sleep(NAP * 5);
    }
}

fn waits_for_cancel(name: &str) -> bool {
    name.starts_with("heeds") || name.starts_with("ignores")
}

fn enqueue(store: &Arc<dyn Store>, names: &[String]) {
    let tasks: Vec<NewTask> = names.iter().map(|name| task(name)).collect();
    insist(store, |tx| tx.enqueue(SystemClock.now(), &tasks));
}

/// Ends lost leases until it is asked to stop.
fn reap(store: &Arc<dyn Store>, over: &AtomicBool) -> usize {
    let mut upkeep = Upkeep::new(store.clone()).grace(LEASE / 2);
    let mut reaped = 0;
    while !over.load(Ordering::SeqCst) {
        reaped += upkeep.tick(SystemClock.now()).map_or(0, |report| report.reaped.len());
        std::thread::sleep(NAP * 2);
    }
    reaped
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

/// What was done to the workers.
#[derive(Debug, Default)]
struct Strikes {
    killed: usize,
    frozen: usize,
    terminated: usize,
    /// How many leases workers said that they lost.
    said_lost: usize,
}

/// The processes that work.
struct Crew<'a> {
    kind: Kind,
    effects: &'a Effects,
    stop: PathBuf,
    workers: Vec<Respawned>,
    started: usize,
    frozen: Option<(usize, Instant)>,
    strikes: Strikes,
    seed: u64,
}

impl<'a> Crew<'a> {
    fn start(kind: Kind, effects: &'a Effects, folder: &Path, name: &str) -> Self {
        let (stop, seed) = (folder.join(name), u64::from(std::process::id()));
        let (workers, strikes) = (Vec::new(), Strikes::default());
        let mut crew = Self { kind, effects, stop, workers, started: 0, frozen: None, strikes, seed };
        crew.workers = (0..WORKERS).map(|_| crew.spawn()).collect();
        crew
    }

    fn spawn(&mut self) -> Respawned {
        self.started += 1;
        let name = self.stop.file_name().unwrap().to_str().unwrap();
        let orders = Orders {
            effects: self.effects.clone(),
            holder: format!("{name}-{}", self.started),
            kind: self.kind,
            stop: self.stop.clone(),
        };
        Respawned::new("child", &serde_json::to_string(&orders).unwrap())
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }

    /// Strikes again and again for this long.
    fn burn(&mut self, length: Duration, mut terminate: impl FnMut() -> usize) {
        let until = Instant::now() + length;
        while Instant::now() < until {
            std::thread::sleep(NAP * (5 + self.random(25) as u32));
            self.workers.iter_mut().for_each(Respawned::must_live);
            let said: Vec<String> = self.workers.iter().flat_map(Respawned::said).collect();
            self.hear(&said);
            if let Some((at, _)) = self.frozen.take_if(|(_, since)| since.elapsed() > LEASE * 2) {
                signal(self.workers[at].pid(), Signal::CONT);
            }
            let at = self.random(WORKERS);
            match self.random(6) {
                0 | 1 => {
                    self.frozen = self.frozen.filter(|(frozen, _)| *frozen != at);
                    let heir = self.spawn();
                    let said = std::mem::replace(&mut self.workers[at], heir).kill();
                    self.hear(&said);
                    self.strikes.killed += 1;
                }
                2 | 3 if self.frozen.is_none() => {
                    signal(self.workers[at].pid(), Signal::STOP);
                    self.frozen = Some((at, Instant::now()));
                    self.strikes.frozen += 1;
                }
                4 => self.strikes.terminated += terminate(),
                _ => {}
            }
        }
        if let Some((at, _)) = self.frozen.take() {
            signal(self.workers[at].pid(), Signal::CONT);
        }
    }

    fn hear(&mut self, lines: &[String]) {
        self.strikes.said_lost += lines.iter().filter(|line| *line == LOST).count();
    }

    /// Stops all workers. Returns what each says at its end.
    fn stop(self) -> Vec<Stopped> {
        std::fs::write(&self.stop, "").unwrap();
        let said = self.workers.into_iter().map(|worker| worker.join());
        said.map(|lines| Stopped::read(lines.iter().rfind(|line| *line != LOST).unwrap())).collect()
    }
}

/// What a worker said when it had stopped.
#[derive(Debug)]
struct Stopped {
    took: Duration,
    refused: usize,
    unstored: usize,
    working: usize,
}

impl Stopped {
    fn read(line: &str) -> Self {
        let numbers: Vec<usize> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [took, _, refused, unstored, working] = numbers[..] else { panic!("{line}") };
        Self { took: Duration::from_millis(took as u64), refused, unstored, working }
    }
}

fn until(what: &str, store: &Arc<dyn Store>, names: &[String], is_so: impl Fn(TaskState) -> bool) {
    let (began, keys) = (Instant::now(), names.iter().map(|name| key(name)).collect::<Vec<_>>());
    loop {
        let tasks = insist(store, |tx| tx.tasks(&keys));
        let others: Vec<_> = tasks.iter().flatten().filter(|task| !is_so(task.state)).collect();
        if others.is_empty() {
            return assert_eq!(tasks.iter().flatten().count(), names.len(), "a task was lost");
        }
        assert!(began.elapsed() < IN_VAIN, "{what}, in vain: {others:#?}");
        std::thread::sleep(NAP);
    }
}

pub fn survive(kind: Kind, database: &Database, effects: &Effects) {
    let seconds = std::env::var("STATIONMASTER_FIRE_SECONDS").map_or(9, |text| text.parse().unwrap());
    let third = Duration::from_secs(seconds) / 3;
    let (folder, store) = (tempfile::tempdir().unwrap(), effects.place.open(Commits::Durable));
    effects.make_table();
    let (ends, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (names, reaped, strikes, stopped) = std::thread::scope(|scope| {
        // Whatever fails ends the others.
        let _ends = Ends(&[&ends, &over]);
        let reaper = scope.spawn(|| reap(&store, &over));
        let producer = scope.spawn(|| produce(&store, &ends));
        let mut crew = Crew::start(kind, effects, folder.path(), "crew");
        crew.burn(third, || database.terminate());
        database.while_down(&effects.place, || crew.burn(third, || 0));
        crew.burn(third, || database.terminate());
        ends.store(true, Ordering::SeqCst);
        let mut names = producer.join().unwrap();
        until("all end", &store, &names, TaskState::is_end);
        // Some handlers never return, and others are at work, when the workers are stopped.
        let stuck: Vec<String> = (0..WORKERS * PLACES / 2).map(|n| format!("stuck-{n}")).collect();
        let more: Vec<String> = (0..50).map(|n| format!("works-at-the-end-{n}")).collect();
        enqueue(&store, &stuck);
        // One that lost its lease before the last of them began has ended already.
        until("some are stuck", &store, &stuck, |state| state == TaskState::Running || state.is_end());
        enqueue(&store, &more);
        let strikes = std::mem::take(&mut crew.strikes);
        let stopped = crew.stop();
        names.extend(stuck.into_iter().chain(more));
        let heirs = Crew::start(kind, effects, folder.path(), "heirs");
        names.extend(names.clone().iter().filter(|name| name.starts_with("ends-")).map(|name| follows(name)));
        until("all end under the heirs", &store, &names, TaskState::is_end);
        heirs.stop();
        over.store(true, Ordering::SeqCst);
        (names, reaper.join().unwrap(), strikes, stopped)
    });
    check(&store, effects, &names);
    let working: usize = stopped.iter().map(|one| one.working).sum();
    assert!(working > 0 || kind != Kind::Threads, "no thread was stuck when its worker stopped");
    println!(
        "{kind:?} on {}: {seconds} s of fire, {} tasks, {strikes:?}, {reaped} leases reaped; a stop took {:?} at most, {} \
         ends were refused, {working} handlers were left at work, {} ends left unstored",
        store.info().backend,
        names.len(),
        stopped.iter().map(|one| one.took).max().unwrap(),
        stopped.iter().map(|one| one.refused).sum::<usize>(),
        stopped.iter().map(|one| one.unstored).sum::<usize>(),
    );
    assert!(strikes.killed > 0 && strikes.frozen > 0 && reaped > 0, "there was hardly fire");
}

fn follows(name: &str) -> String {
    follower(&name.try_into().unwrap()).key.task.as_str().to_owned()
}

/// Each task has ended once, each effect took place once if its task succeeded, and not otherwise.
fn check(store: &Arc<dyn Store>, effects: &Effects, names: &[String]) {
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    let mut ends = ends_told(store);
    let (mut done, keys) = (effects.count(), names.iter().map(|name| key(name)).collect::<Vec<_>>());
    for (name, task) in names.iter().zip(store.read(|tx| tx.tasks(&keys)).unwrap()) {
        let state = task.unwrap().state;
        assert!(state == TaskState::Success || waits_for_cancel(name), "{name}: {state}");
        assert!([TaskState::Success, TaskState::Cancelled].contains(&state), "{name}: {state}");
        assert_eq!(ends.remove(name), Some(1), "{name} is to end once");
        let has_effect = !["plain", "ends", "heeds"].iter().any(|kind| name.starts_with(kind));
        let expected = (has_effect && state == TaskState::Success).then_some(1);
        assert_eq!(done.remove(name), expected, "the effect of {name}, {state}");
    }
    assert!(ends.is_empty() && done.is_empty(), "{ends:?} {done:?}");
    let open = store.read(|tx| tx.count_tasks(1_000_000)).unwrap();
    assert!(open.iter().all(|count| count.state.is_end() || count.tasks == 0), "{open:?}");
}

/// How often the feed tells that a task has ended, by name.
fn ends_told(store: &Arc<dyn Store>) -> BTreeMap<String, u32> {
    let ends = Arc::new(Mutex::new(BTreeMap::new()));
    let told = ends.clone();
    let mut reader = FeedReader::new(store.clone(), "check".try_into().unwrap(), move |event: &TaskEvent| {
        *told.lock().unwrap().entry(event.task.task.to_string()).or_default() += 1;
        Ok(())
    });
    while reader.tick(SystemClock.now()).unwrap().accepted > 0 {}
    ends.lock().unwrap().clone()
}

/// Sets these when it is dropped.
struct Ends<'a>(&'a [&'a AtomicBool]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|flag| flag.store(true, Ordering::SeqCst));
    }
}
