//! Processes that read the feed are killed, stopped and replaced; each end must reach each consumer, in order.
//!
//! Two processes read for each of three consumers. One of the consumers registers while ends are under way, on PostgreSQL
//! across transactions of hosts that stay open. Each process notes what it is given in its consumer's file, one write a
//! line, so the lines stand in the order in which handlers were called.
//!
//! `STATIONMASTER_FEED_ENDS` sets how many tasks end (400 without it), `STATIONMASTER_FEED_KILLS` how often each
//! consumer's reader is killed or stopped (2 without it).
#![cfg(all(unix, feature = "testing", any(feature = "sqlite", feature = "postgres")))]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../place/mod.rs"]
mod place;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../respawn/mod.rs"]
mod respawn;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use place::{Commits, Place};
use respawn::{Respawned, say};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::feed::TaskEvent;
use stationmaster::ops::{Cleared, Mark, Marked};
use stationmaster::service::{FeedReader, Service, Upkeep};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::{NewTask, TaskKey, TaskState};

const TURN: Duration = Duration::from_millis(300);
/// How long a process sleeps at most between two ticks.
const NAP: Duration = Duration::from_millis(10);
/// How long a handler takes.
const PACE: Duration = Duration::from_micros(200);
/// The consumer that registers while ends are under way.
const LATE: &str = "late";
/// How many events a tick of upkeep deletes.
const PIECE: usize = 1_000;
/// One in this many tasks is cleared after it ended, and ends again.
const TWICE: usize = 10;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    place: Place,
    consumer: String,
    heard: PathBuf,
    /// What upkeep deletes while a consumer registers may count as lost, although the consumer begins behind it.
    may_lose_at_first: bool,
}

#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    let Orders { place, consumer, heard, may_lose_at_first } = serde_json::from_str(&argument).unwrap();
    let mut file = OpenOptions::new().append(true).create(true).open(heard).unwrap();
    let me = std::process::id();
    let handler = move |event: &TaskEvent| {
        file.write_all(format!("{} {} {} {me}\n", event.seq, event.task.task, event.state).as_bytes())?;
        std::thread::sleep(PACE);
        Ok(())
    };
    let reader = FeedReader::new(place.open(Commits::Quick), consumer.as_str().try_into().unwrap(), handler);
    let mut reader = reader.turn(TURN).refresh_every(NAP);
    say("ready");
    let mut may_lose = may_lose_at_first;
    loop {
        let now = SystemClock.now();
        // A store that failed is asked again.
        let report = reader.tick(now).unwrap_or_default();
        assert!((report.lost == 0 || may_lose) && report.refused.is_none(), "{report:?}");
        may_lose &= !report.has_turn;
        if report.next_due.is_none_or(|due| due > now) {
            std::thread::sleep(NAP);
        }
    }
}

/// One call of a handler.
#[derive(Debug)]
struct Line {
    seq: u64,
    task: String,
    state: String,
    reader: u32,
}

/// The processes of one consumer, and what they were given.
struct Consumer {
    orders: Orders,
    file: File,
    text: String,
    lines: Vec<Line>,
    readers: Vec<Respawned>,
    /// How many lines there were when a reader was last killed or stopped.
    struck_at: usize,
    strikes: usize,
    stopped: Option<(u32, Instant)>,
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

impl Consumer {
    fn start(place: &Place, name: &str, dir: &std::path::Path) -> Self {
        let heard = dir.join(name);
        File::create(&heard).unwrap();
        let (place, consumer) = (place.clone(), name.to_owned());
        let orders = Orders { place, consumer, heard, may_lose_at_first: name == LATE };
        let mut consumer = Self {
            file: File::open(&orders.heard).unwrap(),
            orders,
            text: String::new(),
            lines: Vec::new(),
            readers: Vec::new(),
            struck_at: 0,
            strikes: 0,
            stopped: None,
        };
        // Both at once, so that they register at once.
        consumer.readers = vec![consumer.spawn(), consumer.spawn()];
        consumer.orders.may_lose_at_first = false;
        consumer
    }

    fn spawn(&self) -> Respawned {
        Respawned::new("child", &serde_json::to_string(&self.orders).unwrap())
    }

    /// Reads on what the processes noted.
    fn listen(&mut self) {
        self.readers.iter_mut().for_each(Respawned::must_live);
        self.file.read_to_string(&mut self.text).unwrap();
        let whole = self.text.rfind('\n').map_or(0, |at| at + 1);
        for line in self.text[..whole].lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap().to_owned();
            self.lines.push(Line {
                seq: word().parse().unwrap(),
                task: word(),
                state: word(),
                reader: word().parse().unwrap(),
            });
        }
        self.text.drain(..whole);
    }

    fn last(&self) -> u64 {
        self.lines.iter().map(|line| line.seq).max().unwrap_or(0)
    }

    /// Kills the reader that has the turn, or stops it for longer than its turn, so that it goes on when another one has
    /// read further.
    fn strike(&mut self) {
        self.struck_at = self.lines.len();
        self.strikes += 1;
        let reader = self.lines.last().unwrap().reader;
        let Some(at) = self.readers.iter().position(|one| one.pid() == reader) else { return };
        if self.strikes.is_multiple_of(2) {
            signal(reader, Signal::STOP);
            self.stopped = Some((reader, Instant::now() + TURN * 2));
        } else {
            let heir = self.spawn();
            std::mem::replace(&mut self.readers[at], heir).kill();
        }
    }

    fn wake(&mut self) {
        if let Some((reader, _)) = self.stopped.take_if(|(_, until)| *until <= Instant::now()) {
            signal(reader, Signal::CONT);
        }
    }

    /// Checks that nothing was left out, and returns the first number and how many lines came again.
    fn check(&self, last: u64) -> (u64, usize) {
        let name = &self.orders.consumer;
        let first = self.lines[0].seq;
        let mut next = first;
        for line in &self.lines {
            assert!(line.seq <= next, "{name}: {} came before {next}", line.seq);
            next = next.max(line.seq + 1);
        }
        assert_eq!(next, last + 1, "{name}");
        (first, self.lines.len() - usize::try_from(last + 1 - first).unwrap())
    }

    /// What each number stood for. It never stands for two things.
    fn events(&self) -> BTreeMap<u64, (&str, &str)> {
        let mut events = BTreeMap::new();
        for line in &self.lines {
            let event = (line.task.as_str(), line.state.as_str());
            assert_eq!(*events.entry(line.seq).or_insert(event), event, "{}", line.seq);
        }
        events
    }
}

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

fn name(n: usize) -> String {
    format!("t{n}")
}

/// Ends these tasks, fifty in a transaction. Calls `pause` after the first one.
fn produce(store: &Arc<dyn Store>, tasks: &[usize], pause: impl Fn()) {
    for (nth, some) in tasks.chunks(50).enumerate() {
        if nth == 1 {
            pause();
        }
        let mark = |n: &usize, to| Mark::new(key(&name(*n)), to, "x");
        let twice: Vec<&usize> = some.iter().filter(|n| n.is_multiple_of(TWICE)).collect();
        let tasks: Vec<NewTask> =
            some.iter().map(|n| NewTask::new(key(&name(*n))).feed(Feed::Ends)).collect();
        let first: Vec<Mark> = some.iter().map(|n| mark(n, TaskState::Skipped)).collect();
        let again: Vec<TaskKey> = twice.iter().map(|n| key(&name(**n))).collect();
        let second: Vec<Mark> = twice.iter().map(|n| mark(n, TaskState::Failed)).collect();
        let now = SystemClock.now();
        let end = |tx: &mut stationmaster::store::Tx<'_>| {
            tx.enqueue(now, &tasks)?;
            tx.mark(now, &first)?;
            // In one transaction, so that upkeep deletes none before it is cleared.
            assert!(tx.clear(now, &again)?.iter().all(|cleared| *cleared == Cleared::Ready));
            tx.mark(now, &second)
        };
        store.write(end).unwrap();
    }
}

fn consumers_of(store: &Arc<dyn Store>) -> usize {
    store.read(|tx| tx.consumers()).unwrap().len()
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// `host`: a store whose transactions are a host's, if hosts may leave theirs open.
fn read_under_fire(place: &Place, host: Option<Arc<dyn Store>>) {
    let tasks = number("STATIONMASTER_FEED_ENDS", 400);
    let strikes = number("STATIONMASTER_FEED_KILLS", 2);
    let hosts: &[&str] = if host.is_some() { &["open", "undone"] } else { &[] };
    let last = (tasks + tasks.div_ceil(TWICE) + hosts.len().min(1)) as u64;
    let step = usize::try_from(last).unwrap() / (strikes + 1);
    let (dir, store, began) = (tempfile::tempdir().unwrap(), place.open(Commits::Quick), Instant::now());
    let deadline = began + Duration::from_secs(60) + Duration::from_millis(20) * tasks as u32;
    let new: Vec<NewTask> = hosts.iter().map(|name| NewTask::new(key(name)).feed(Feed::Ends)).collect();
    store.write(|tx| tx.enqueue(SystemClock.now(), &new)).unwrap();
    let (done, registered) = (AtomicBool::new(false), AtomicBool::new(false));
    let consumers = std::thread::scope(|scope| {
        // Whatever fails ends the others.
        let _ends = Ends(&[&done, &registered]);
        // One transaction is open from before the first consumer registers until after the last has.
        let (done, registered, store) = (&done, &registered, &store);
        let until = |flag: &AtomicBool| {
            while !flag.load(Ordering::SeqCst) {
                std::thread::sleep(NAP);
            }
        };
        if let Some(host) = &host {
            let (tell, is_open) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let marks =
                    ["open", "undone"].map(|name| Mark::new(key(name), TaskState::Success, "by a host"));
                let undone = host.write(|tx| {
                    tx.mark(SystemClock.now(), &marks[1..])
                        .and(Err::<(), _>(stationmaster::Error::abort("x")))
                });
                assert!(undone.is_err());
                let open = host.write(|tx| {
                    let marked = tx.mark(SystemClock.now(), &marks[..1])?;
                    tell.send(()).unwrap();
                    until(registered);
                    Ok(marked)
                });
                assert_eq!(open.unwrap(), [Marked::Ended(TaskState::Scheduled)]);
            });
            is_open.recv().unwrap();
        }
        let mut consumers =
            vec![Consumer::start(place, "one", dir.path()), Consumer::start(place, "two", dir.path())];
        // Both begin with the first event: upkeep deletes what all have accepted that are registered.
        while consumers_of(store) < 2 {
            consumers.iter_mut().for_each(Consumer::listen);
            assert!(Instant::now() < deadline, "two readers register");
            std::thread::sleep(NAP);
        }
        for half in [0, 1] {
            let all: Vec<usize> = (0..tasks).filter(|n| n % 2 == half).collect();
            // One of them goes on when the third consumer has registered, so that there are events left for it.
            let pause = move || {
                while half == 1 && !done.load(Ordering::SeqCst) && consumers_of(store) < 3 {
                    std::thread::sleep(NAP);
                }
            };
            scope.spawn(move || produce(store, &all, pause));
        }
        let upkeep = scope.spawn(move || {
            let mut upkeep = Upkeep::new(store.clone()).retain_ended_for(Duration::ZERO).limit(PIECE);
            let mut forgotten = 0;
            while !done.load(Ordering::SeqCst) {
                let least = || {
                    let consumers = store.read(|tx| tx.consumers()).unwrap();
                    consumers.iter().map(|one| one.cursor).min().unwrap_or(0)
                };
                let before = least();
                let now = upkeep.tick(SystemClock.now()).unwrap().feed_forgotten;
                // Who registers meanwhile begins further back.
                let accepted = before.min(least());
                let oldest = store.read(|tx| tx.feed(0, 1)).unwrap().into_iter().next();
                // In bounded pieces.
                let is_behind = oldest.is_some_and(|oldest| oldest.seq <= accepted) && now < PIECE;
                assert!(!is_behind, "what all have accepted, up to {accepted}, is kept");
                forgotten += now;
                std::thread::sleep(NAP);
            }
            // A reader may not have stored yet what it accepted last.
            while forgotten < usize::try_from(last).unwrap() && Instant::now() < deadline {
                forgotten += upkeep.tick(SystemClock.now()).unwrap().feed_forgotten;
                std::thread::sleep(NAP);
            }
            forgotten
        });
        while consumers.len() < 3
            || consumers.iter().any(|consumer| consumer.last() < last || consumer.stopped.is_some())
        {
            let progress: Vec<(u64, usize)> = consumers.iter().map(|one| (one.last(), one.strikes)).collect();
            assert!(Instant::now() < deadline, "of {last}: {progress:?}");
            for consumer in &mut consumers {
                consumer.listen();
                consumer.wake();
                if consumer.lines.len() >= consumer.struck_at + step
                    && consumer.stopped.is_none()
                    && consumer.strikes < strikes
                {
                    consumer.strike();
                }
            }
            if consumers.len() < 3 && consumers[0].last() > last / 3 {
                consumers.push(Consumer::start(place, LATE, dir.path()));
            }
            if consumers.len() == 3 && !consumers[2].lines.is_empty() {
                registered.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        done.store(true, Ordering::SeqCst);
        let forgotten = upkeep.join().unwrap() as u64;
        assert_eq!(forgotten, last, "what all accepted is deleted");
        consumers
    });
    let all = consumers[0].events();
    let mut states: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    all.values().for_each(|(task, state)| states.entry(task).or_default().push(state));
    for n in 0..tasks {
        let expected: &[&str] = if n.is_multiple_of(TWICE) { &["skipped", "failed"] } else { &["skipped"] };
        assert_eq!(states[&*name(n)], expected, "{n}");
    }
    assert_eq!((states.get("open").map_or(0, Vec::len), states.get("undone")), (hosts.len().min(1), None));
    let mut again = 0;
    for (consumer, from_the_first) in consumers.iter().zip([true, true, false]) {
        let (first, repeated) = consumer.check(last);
        assert!(first == 1 || !from_the_first);
        assert!(consumer.events().iter().all(|(seq, event)| all[seq] == *event), "one order for all");
        assert!(
            consumer.strikes >= strikes.min(1),
            "{} was struck {} times",
            consumer.orders.consumer,
            consumer.strikes
        );
        again += repeated;
    }
    assert!(again > 0, "no cursor was lost");
    assert!(
        store
            .read(|tx| tx.consumers())
            .unwrap()
            .iter()
            .all(|one| { one.cursor == last && (one.lost == 0 || one.name.as_str() == LATE) })
    );
    assert_eq!(store.read(|tx| tx.feed(0, 9)).unwrap(), []);
    let strikes: usize = consumers.iter().map(|consumer| consumer.strikes).sum();
    println!(
        "{}: {last} ends to 3 consumers in {:?}, {strikes} readers killed or stopped, {again} events came again",
        store.info().backend,
        began.elapsed()
    );
}

/// Sets these when it is dropped.
struct Ends<'a>(&'a [&'a AtomicBool]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|flag| flag.store(true, Ordering::SeqCst));
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn readers_are_killed_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    read_under_fire(&Place::Sqlite(dir.path().join("feed.db")), None);
}

#[cfg(feature = "postgres")]
#[test]
fn readers_in_postgres_are_killed_and_replaced_while_hosts_are_open() {
    use place::postgres::{Database, Level, Owner};
    let scratch = scratch::Scratch::new();
    let database = |owner| Database {
        url: scratch::url(),
        schema: scratch.0.to_string(),
        level: Level::ReadCommitted,
        owner,
    };
    let place = Place::Postgres(database(Owner::Store));
    let host = database(Owner::Host).open(Commits::Quick).unwrap();
    read_under_fire(&place, Some(host));
}
