//! Nothing is spawned unasked, and what sleeps wakes when it is stopped. One test, because it counts the threads of its process.
#![cfg(target_os = "linux")]

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{
    Admitter, Attempt, FeedReader, Keeper, LoopHandle, PokeRequest, Poker, Service, Upkeep, WakingStore,
    Worker, drive,
};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskState, Timestamp};

#[cfg(feature = "postgres")]
mod scratch;

const HOUR: Duration = Duration::from_secs(3_600);

/// The threads of this process that are there to stay: one that has ended may be listed for a moment.
fn threads() -> usize {
    let count = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let mut fewest = count();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(2));
        fewest = fewest.min(count());
    }
    fewest
}

/// There are as many threads as this, once those that ended are no longer listed.
#[track_caller]
fn are_threads(expected: usize, why: &str) {
    let began = Instant::now();
    let mut seen = threads();
    while seen != expected && began.elapsed() < Duration::from_secs(30) {
        seen = threads();
    }
    assert_eq!(seen, expected, "{why}");
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn stores(folder: &std::path::Path) -> Vec<Arc<dyn Store>> {
    let memory = WakingStore::new(MemoryStore::new(), LoopHandle::new());
    #[allow(unused_mut)]
    let mut stores: Vec<Arc<dyn Store>> = vec![Arc::new(memory)];
    #[cfg(feature = "sqlite")]
    {
        use stationmaster::store::sqlite::{SqliteOptions, SqliteStore};
        stores.push(Arc::new(SqliteStore::open(folder.join("t.db"), SqliteOptions::new()).unwrap()));
    }
    let _ = folder;
    stores
}

fn poker(store: &Arc<dyn Store>) -> Poker {
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    Poker::new(store.clone(), "p".try_into().unwrap())
        .threads(3)
        .wait_for_answers(Duration::from_secs(120))
        .kind("kind".try_into().unwrap(), poke)
}

/// A task that waits as a sensor.
fn sense(store: &Arc<dyn Store>, admitter: &mut Admitter) {
    let task = NewTask::new(TaskKey::new("ns", "w", "r", "waits").unwrap());
    store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task))).unwrap();
    let lease: LeaseRef = admitter.tick(at(0)).unwrap().granted[0].lease_ref();
    let context = PokeContext::from_json("{}").unwrap();
    let settings = Settings::new(Duration::from_secs(10), HOUR).unwrap();
    let sensor = NewSensor::new(lease, "kind".try_into().unwrap(), context, settings);
    store
        .write(|tx| {
            tx.start(at(0), &[lease])?;
            tx.register(at(0), std::slice::from_ref(&sensor))
        })
        .unwrap();
}

/// Runs a loop that has nothing to do for an hour, stops it, and tells if it ended.
fn ends_when_stopped<S: Service + Send + 'static>(mut service: S) -> bool {
    let handle = LoopHandle::new();
    let (ticks, ticked) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let own = handle.clone();
    let thread = std::thread::spawn(move || {
        drive(&mut service, &SystemClock, &own, HOUR, |report| {
            report.unwrap();
            ticks.send(()).unwrap();
            ControlFlow::Continue(())
        });
        drop(service);
        ends.send(()).unwrap();
    });
    ticked.recv_timeout(Duration::from_secs(60)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(ended.try_recv().is_err(), "it sleeps");
    handle.stop();
    // Joined, so that it does not count as a thread of the service's.
    ended.recv_timeout(Duration::from_secs(60)).is_ok() && thread.join().is_ok()
}

#[test]
fn threads_are_the_hosts_but_for_those_that_poke_or_work_or_serve_a_postgres_store() {
    let folder = tempfile::tempdir().unwrap();
    let before = threads();
    for store in stores(folder.path()) {
        let mut admitter = Admitter::new(store.clone(), "a".try_into().unwrap());
        let mut upkeep = Upkeep::new(store.clone());
        let reader = FeedReader::new(store.clone(), "c".try_into().unwrap(), |_| Ok(()));
        let mut reader = reader.refresh_every(HOUR);
        let mut idle = poker(&store);
        let mut keeper = Keeper::new(store.clone(), HOUR);
        admitter.tick(at(0)).unwrap();
        keeper.tick(at(0)).unwrap();
        upkeep.tick(at(0)).unwrap();
        reader.tick(at(0)).unwrap();
        idle.tick(at(0)).unwrap();
        are_threads(before, "services and a poker with nothing to poke");
        idle.leave().unwrap();

        sense(&store, &mut admitter);
        let mut busy = poker(&store);
        assert_eq!(busy.tick(at(1)).unwrap().poked, 1);
        let poking = threads();
        assert!((before + 1..=before + 3).contains(&poking), "{poking} threads, {before} before");
        busy.leave().unwrap();
        are_threads(before, "its threads ended when it left");
        let mut dropped = poker(&store);
        assert_eq!((60..140).map(|now| dropped.tick(at(now)).unwrap().poked).sum::<usize>(), 8);
        assert!(threads() > before);
        drop(dropped);
        are_threads(before, "its threads ended with it");

        assert!(ends_when_stopped(admitter));
        assert!(ends_when_stopped(keeper));
        assert!(ends_when_stopped(upkeep));
        assert!(ends_when_stopped(reader));
        let sleeper = Poker::new(store.clone(), "s".try_into().unwrap()).refresh_every(HOUR).lease(HOUR * 24);
        assert!(ends_when_stopped(sleeper));
        are_threads(before, "services that were stopped");

        let task = NewTask::new(TaskKey::new("ns", "w", "r", "works").unwrap());
        store.write(|tx| tx.enqueue(SystemClock.now(), std::slice::from_ref(&task))).unwrap();
        let (handle, worker) = (LoopHandle::new(), Worker::new(store.clone(), "w".try_into().unwrap()));
        let stop = handle.clone();
        let worker = worker.handler(move |attempt: &Attempt| {
            are_threads(before + 4, "three of the worker, and this one");
            stop.stop();
            attempt.end((), |_| Ok(()))
        });
        worker.run(&handle).unwrap();
        are_threads(before, "its threads ended with it");
        let ended = store.read(|tx| tx.tasks(std::slice::from_ref(&task.key))).unwrap().remove(0).unwrap();
        assert_eq!(ended.state, TaskState::Success, "{:?}", ended.message);
    }
    #[cfg(feature = "postgres")]
    {
        let scratch = scratch::Scratch::new();
        let before = threads();
        let store = scratch.open(|options| options);
        are_threads(before + 1, "one talks to the server");
        let listening = store.on_change(|_| {}).unwrap();
        are_threads(before + 2, "one calls back");
        drop(listening);
        are_threads(before + 1, "it ended with what it served");
        drop(store);
        are_threads(before, "so did the other");
    }
    assert!(SystemClock.now() > at(0));
}
