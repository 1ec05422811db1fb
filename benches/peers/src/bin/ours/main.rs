//! stationmaster: what each command does is in ../../../README.md.

mod api;
#[path = "../../../shared/program.rs"]
mod program;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use api::{CONNECTIONS, Due, Ours, Wake, number_of};
use program::{DONE, LONGEST_END, LONGEST_RENEWAL, begun, number, timed};
use stationmaster::store::postgres::tokio_postgres::{NoTls, connect};
use stationmaster::{LeaseRef, TaskRecord};

/// Places that end tasks, each one on its own.
const PLACES: usize = 24;
/// How many batches overlap.
const BATCHES: usize = 2;

fn leases(granted: &[TaskRecord]) -> Vec<LeaseRef> {
    granted.iter().map(TaskRecord::lease_ref).collect()
}

/// Grants and starts at most this many tasks. Waits while there are none.
fn grant(ours: &Ours, most: usize) -> Vec<TaskRecord> {
    wait_for(ours, || ours.step(&[], most))
}

fn wait_for(ours: &Ours, grant: impl Fn() -> Vec<TaskRecord>) -> Vec<TaskRecord> {
    loop {
        let seen = ours.seen();
        let granted = grant();
        if !granted.is_empty() {
            return granted;
        }
        ours.wait_since(seen, Duration::from_millis(100));
    }
}

/// The ends of the last batch and the grant of the next are one transaction; they do not overlap.
fn in_sequence(ours: &Ours, most: usize) {
    let mut ends = Vec::new();
    loop {
        let seen = ours.seen();
        let granted = ours.step(&ends, most);
        DONE.fetch_add(ends.len() as u64, Relaxed);
        if granted.is_empty() && ends.is_empty() {
            ours.wait_since(seen, Duration::from_millis(100));
        }
        ends = leases(&granted);
    }
}

/// Two batches at a time, each in sequence. So one of them ends and is granted while the tasks of the other run.
fn overlapping(ours: &Ours, most: usize) {
    scope(|scope| {
        for _ in 0..BATCHES {
            scope.spawn(|| in_sequence(ours, most));
        }
    });
}

/// Each place ends one task after the other, each in a transaction of its own.
fn singly(ours: &Ours, most: usize) {
    let (give, take) = sync_channel::<LeaseRef>(most);
    let take = Mutex::new(take);
    scope(|scope| {
        for _ in 0..PLACES {
            scope.spawn(|| {
                loop {
                    let next = take.lock().expect("not poisoned").recv();
                    let Ok(lease) = next else { return };
                    ours.end(&[lease]);
                    DONE.fetch_add(1, Relaxed);
                }
            });
        }
        loop {
            for task in grant(ours, most) {
                give.send(task.lease_ref()).expect("someone ends tasks");
            }
        }
    });
}

/// What a `Worker` does, written by hand with the verbs: as many tasks are asked for as places are free, each runs
/// in its place, and ends that come while others are stored share the next transaction.
fn by_hand(ours: &Ours) {
    let (give, take) = sync_channel::<LeaseRef>(PLACES);
    let (ended, ends) = sync_channel::<LeaseRef>(PLACES);
    let (take, free) = (Mutex::new(take), (Mutex::new(PLACES), Condvar::new()));
    scope(|scope| {
        for _ in 0..PLACES {
            scope.spawn(|| {
                loop {
                    let next = take.lock().expect("not poisoned").recv();
                    let Ok(lease) = next else { return };
                    ended.send(lease).expect("someone stores ends");
                }
            });
        }
        let free = &free;
        scope.spawn(move || {
            while let Ok(first) = ends.recv() {
                let stored: Vec<LeaseRef> = std::iter::once(first).chain(ends.try_iter()).collect();
                ours.end(&stored);
                DONE.fetch_add(stored.len() as u64, Relaxed);
                *free.0.lock().expect("not poisoned") += stored.len();
                free.1.notify_one();
            }
        });
        loop {
            let mut places = free.0.lock().expect("not poisoned");
            while *places == 0 {
                places = free.1.wait(places).expect("not poisoned");
            }
            let most = *places;
            drop(places);
            let granted = grant(ours, most);
            *free.0.lock().expect("not poisoned") -= granted.len();
            leases(&granted).into_iter().for_each(|lease| give.send(lease).expect("a place is free"));
        }
    });
}

/// Full load that lasts: as many tasks are enqueued as end. Beside it, one long task is renewed ten times a
/// second, and leases are reaped.
fn load(ours: &Ours, most: usize) {
    let long = leases(&grant(ours, 1));
    scope(|scope| {
        scope.spawn(|| ours.drive_upkeep());
        scope.spawn(|| {
            loop {
                timed(&LONGEST_RENEWAL, || ours.renew(&long));
                sleep(Duration::from_millis(100));
            }
        });
        let (name, mut sent) = (format!("again-{}", std::process::id()), 0);
        loop {
            let ends = leases(&grant(ours, most));
            timed(&LONGEST_END, || ours.end(&ends));
            DONE.fetch_add(ends.len() as u64, Relaxed);
            let until = sent + ends.len() as u64;
            ours.enqueue(&name, sent..until, Due::Now);
            sent = until;
        }
    });
}

/// Every operation in turn, for one that is stopped in the middle of any.
fn everything(ours: &Ours, most: usize) {
    scope(|scope| {
        scope.spawn(|| ours.drive_upkeep());
        let (name, mut sent) = (format!("every-{}", std::process::id()), 0);
        loop {
            ours.enqueue(&name, sent..sent + most as u64, Due::Now);
            sent += most as u64;
            let held = leases(&grant(ours, most));
            ours.renew(&held);
            let quarter = held.len().div_ceil(4);
            let mut parts = held.chunks(quarter);
            parts.next().into_iter().for_each(|part| ours.fail(part));
            parts.next().into_iter().for_each(|part| ours.give_back(part));
            parts.for_each(|part| ours.end(part));
            DONE.fetch_add(held.len() as u64, Relaxed);
        }
    });
}

fn ticks(ours: &Ours, most: usize) {
    loop {
        ours.give_back(&leases(&grant(ours, most)));
    }
}

fn work(shape: &str, lease: Duration) {
    let ours = Ours::worker_on(if shape == "overlap_on_one" { 1 + 1 } else { CONNECTIONS }, lease);
    ours.connect(match shape {
        "overlap_on_one" => 1,
        "single" => PLACES + 1,
        // One admits, one stores ends, one renews.
        "worker" | "worker_async" | "by_hand" => 3,
        _ => 2,
    });
    program::gate();
    match shape {
        "sequence" => in_sequence(&ours, 64),
        "overlap" | "overlap_on_one" => overlapping(&ours, 64),
        "single" => singly(&ours, 64),
        "each" => in_sequence(&ours, 1),
        "by_hand" => by_hand(&ours),
        "worker" => ours.run_worker(PLACES, |_| _ = DONE.fetch_add(1, Relaxed)),
        "worker_async" => ours.run_worker_async(PLACES, |_| _ = DONE.fetch_add(1, Relaxed)),
        "pool" => in_sequence(&ours, 16),
        "load" => load(&ours, 64),
        "everything" => everything(&ours, 64),
        "ticks" => ticks(&ours, 64),
        other => panic!("no shape {other}"),
    }
}

fn fill(ours: &Ours, count: u64) {
    let began = Instant::now();
    for from in (0..count).step_by(1_000) {
        ours.enqueue("fill", from..count.min(from + 1_000), Due::Now);
    }
    program::print_rate(count as usize, began);
}

fn enqueue(connections: usize, count: usize, due: Due) {
    let sender = Ours::sender(Wake::default());
    sender.connect(connections);
    let each = |name: &str, count: usize| {
        scope(|scope| {
            for at in 0..connections {
                let sender = &sender;
                scope.spawn(move || {
                    let numbers = (at..count).step_by(connections).map(|number| number as u64);
                    numbers.for_each(|number| sender.enqueue(name, number..number + 1, due));
                });
            }
        });
    };
    each("warm", connections);
    let began = Instant::now();
    each("one", count);
    program::print_rate(count, began);
}

/// Does it by hand: grants, notes what began, and ends it with the next grant.
fn answer(ours: &Ours) {
    let mut ends = Vec::new();
    loop {
        let seen = ours.seen();
        let granted = ours.step(&ends, 4);
        granted.iter().for_each(|task| begun(number_of(task)));
        let waits = granted.is_empty() && ends.is_empty();
        ends = leases(&granted);
        if waits {
            ours.wait_since(seen, Duration::from_secs(1));
        }
    }
}

fn latency(samples: usize, wake: Wake, by_worker: bool) {
    let (ours, sender) = (Ours::worker(Duration::from_secs(60)), Ours::sender(wake));
    spawn(move || match by_worker {
        true => ours.run_worker(4, |task| begun(number_of(task))),
        false => answer(&ours),
    });
    sleep(Duration::from_secs(1));
    program::measure_latency(samples, |number| sender.enqueue("late", number..number + 1, Due::Now));
    std::process::exit(0);
}

fn idle(admitters: usize) {
    let all: Vec<Ours> = (0..admitters).map(|_| Ours::worker(Duration::from_secs(60))).collect();
    program::gate();
    scope(|scope| {
        for ours in &all {
            scope.spawn(|| ours.drive_admitter());
        }
    });
}

/// Keeps this many transactions open at a time. Each does one thing and then stays open.
async fn host(verb: &'static str, open: Duration, hosts: usize) {
    let mut own = Vec::new();
    let mut clients = Vec::new();
    let worker = tokio::task::block_in_place(|| Arc::new(Ours::worker(Duration::from_secs(600))));
    for _ in 0..hosts {
        let granted = tokio::task::block_in_place(|| match verb {
            "enqueue" => Vec::new(),
            "start" => wait_for(&worker, || worker.grant_queued()),
            _ => grant(&worker, 1),
        });
        let one = granted.into_iter().next();
        let (mut client, connection) = connect(&program::url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        // What counts is that its transaction stays open, not that its connection is new.
        let undone = client.transaction().await.expect("begun");
        api::as_host(&undone, verb, program::micros(), one.clone()).await;
        undone.rollback().await.expect("rolled back");
        own.push(one);
        clients.push(client);
    }
    tokio::task::block_in_place(program::gate);
    println!("done {} 0", program::micros());
    let first = program::micros();
    let transactions = clients.into_iter().zip(own).enumerate().map(|(at, (mut client, own))| {
        tokio::spawn(async move {
            let transaction = client.transaction().await.expect("begun");
            api::as_host(&transaction, verb, first + at as u64, own).await;
            tokio::time::sleep(open).await;
            transaction.commit().await.expect("committed");
        })
    });
    for transaction in transactions.collect::<Vec<_>>() {
        transaction.await.expect("a host");
    }
    println!("done {} 1", program::micros());
}

fn sqlite(what: &str, count: usize) {
    let ours = Ours::sqlite(&program::url());
    ours.define("unlimited");
    match what {
        "fill" => fill(&ours, count as u64),
        "enqueue" => {
            let began = Instant::now();
            (0..count as u64).for_each(|number| ours.enqueue("one", number..number + 1, Due::Now));
            program::print_rate(count, began);
        }
        "each" => {
            ours.enqueue("fill", 0..count as u64, Due::Now);
            let began = Instant::now();
            let mut ends = leases(&ours.step(&[], 1));
            while !ends.is_empty() {
                ends = leases(&ours.step(&ends, 1));
            }
            program::print_rate(count, began);
        }
        other => panic!("no {other}"),
    }
}

fn main() {
    let arguments: &'static [String] = program::arguments().leak();
    let word = |at: usize| arguments.get(at).map_or("", String::as_str);
    match word(0) {
        "setup" => Ours::sender(Wake::default()).define(word(1)),
        "fill" => fill(&Ours::sender(Wake::default()), number(arguments, 1) as u64),
        "enqueue" => {
            let due = if word(3) == "tomorrow" { Due::Tomorrow } else { Due::Now };
            enqueue(number(arguments, 1), number(arguments, 2), due);
        }
        "work" => work(word(1), Duration::from_secs(word(2).parse().unwrap_or(60))),
        "latency" => {
            let wake = if word(2) == "transaction" { Wake::InTransaction } else { Wake::default() };
            latency(number(arguments, 1), wake, word(3) == "worker");
        }
        "idle" => idle(number(arguments, 1)),
        "host" => {
            let (open, hosts) = (Duration::from_secs(number(arguments, 2) as u64), number(arguments, 3));
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            runtime.block_on(host(word(1), open, hosts));
            // Leaves those that wait for its input.
            std::process::exit(0);
        }
        "sqlite" => sqlite(word(1), number(arguments, 2)),
        other => panic!("no command {other}"),
    }
}
