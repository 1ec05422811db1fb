//! The poker where it is easily wrong: takeover, time, faults, slow pokes. By a clock that the test moves, where it can.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stationmaster::canonical::PokeContext;
use stationmaster::error::Result;
use stationmaster::ops::Mark;
use stationmaster::sensor::{EndReason, NewSensor, PokeOutcome, SensorRecord, Settings};
use stationmaster::service::{Admitter, PokeLog, PokeReport, PokeRequest, Poker, Service};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::task::Feed;
use stationmaster::testing::FaultStore;
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskState, Timestamp};
use stores::{kinds, stores, told};

mod balance;
mod counts;
mod kinds_served;
mod names;
mod outages;
mod reading;
mod retention;
mod stalls;
#[path = "../stores/mod.rs"]
mod stores;
mod takeovers;
mod timeouts;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Registers a sensor for each name, on a target of its own.
fn sense(store: &Arc<dyn Store>, now: i64, names: &[&str], settings: Settings) {
    let tasks: Vec<NewTask> = names
        .iter()
        .map(|name| NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap()).feed(Feed::EndsAndSensors))
        .collect();
    store.write(|tx| tx.enqueue(at(now), &tasks)).unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let granted = admitter.tick(at(now)).unwrap().granted;
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    let sensors: Vec<NewSensor> = granted
        .iter()
        .map(|task| {
            let context = PokeContext::from_json(&format!(r#"{{"target":"{}"}}"#, task.key.task)).unwrap();
            NewSensor::new(task.lease_ref(), "kind".try_into().unwrap(), context, settings)
        })
        .collect();
    store
        .write(|tx| {
            tx.start(at(now), &leases)?;
            tx.register(at(now), &sensors)
        })
        .unwrap();
}

fn waits(interval: u64, timeout: u64) -> Settings {
    Settings::new(secs(interval), secs(timeout)).unwrap()
}

fn state(store: &Arc<dyn Store>, name: &str) -> TaskState {
    let key = TaskKey::new("ns", "w", "r", name).unwrap();
    store.read(|tx| tx.tasks(std::slice::from_ref(&key))).unwrap().remove(0).unwrap().state
}

fn unkinded(store: &Arc<dyn Store>, name: &str) -> Poker {
    let poker = Poker::new(store.clone(), name.try_into().unwrap());
    let poker = poker.shards(NonZeroU32::new(4).unwrap()).lease(secs(30));
    poker.threads(2).wait_for_answers(secs(60))
}

/// A poker that counts its pokes and answers like this.
fn poker(store: &Arc<dyn Store>, name: &str, asked: &Arc<AtomicUsize>, answer: PokeOutcome) -> Poker {
    let asked = asked.clone();
    let poke = move |_: &PokeRequest| {
        asked.fetch_add(1, Ordering::SeqCst);
        answer.clone()
    };
    unkinded(store, name).kind("kind".try_into().unwrap(), poke)
}

/// The heir does nothing but what its own `next_due` says; the victim dies right after a renewal, or later.
#[test]
fn what_a_dead_worker_held_is_poked_again_within_its_lease_and_one_interval() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let kinds = kinds();
    let each =
        kinds.iter().flat_map(|kind| (100..=110).step_by(kind.stride(5)).map(|died| (died, kind.shared())));
    for (died, store) in each {
        sense(&store, 0, &names, waits(20, 86_400));
        let poked = Arc::new(Mutex::new(Vec::<(String, Timestamp)>::new()));
        let mut workers: Vec<(Timestamp, Poker)> = ["victim", "heir"]
            .into_iter()
            .zip([0, 7])
            .map(|(name, begins)| {
                let poked = poked.clone();
                let poke = move |request: &PokeRequest| {
                    poked.lock().unwrap().push((request.context.to_string(), request.now));
                    PokeOutcome::NotYet
                };
                let poker = unkinded(&store, name).refresh_every(secs(3600));
                (at(begins), poker.kind("kind".try_into().unwrap(), poke))
            })
            .collect();
        let run = |workers: &mut [(Timestamp, Poker)], until: Timestamp| {
            while let Some((due, poker)) = workers.iter_mut().min_by_key(|(due, _)| *due) {
                if *due > until {
                    return;
                }
                *due = poker.tick(*due).unwrap().next_due.unwrap();
            }
        };
        run(&mut workers, at(died));
        workers.remove(0);
        run(&mut workers, at(died + 30 + 20));
        let again: BTreeSet<String> = poked
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, now)| *now > at(died))
            .map(|(target, _)| target.clone())
            .collect();
        assert_eq!(again.len(), names.len(), "died at {died}: {again:?}");
    }
}

#[test]
fn a_sensor_is_looked_at_once_more_when_it_times_out() {
    for store in stores() {
        sense(&store, 0, &["t"], waits(600, 60));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut early = poker(&store, "p", &asked, PokeOutcome::NotYet);
        early.tick(at(0)).unwrap();
        let due = early.tick(at(1)).unwrap().next_due.unwrap();
        assert!(due <= at(60));
        early.leave().unwrap();
        let mut late = poker(&store, "q", &asked, PokeOutcome::Landed(None));
        let landed: usize = (40..=60).map(|now| late.tick(at(now)).unwrap().landed).sum();
        assert_eq!((landed, state(&store, "t")), (1, TaskState::Success));
    }
}

#[test]
fn the_smallest_interval_of_a_group_counts() {
    for store in stores() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::NotYet);
        sense(&store, 0, &["t"], waits(100, 10_000));
        // The same target again, for another task.
        let key = TaskKey::new("ns", "w", "r2", "t").unwrap();
        store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key.clone())])).unwrap();
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
        let lease = admitter.tick(at(0)).unwrap().granted[0].lease_ref();
        let context = PokeContext::from_json(r#"{"target":"t"}"#).unwrap();
        let sensor = NewSensor::new(lease, "kind".try_into().unwrap(), context, waits(10, 10_000));
        store
            .write(|tx| {
                tx.start(at(0), &[lease])?;
                tx.register(at(0), std::slice::from_ref(&sensor))
            })
            .unwrap();
        for now in 0..=100 {
            poker.tick(at(now)).unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 11);
    }
}

#[test]
fn a_restart_pokes_no_more_than_usual_but_looks_at_young_sensors_at_once() {
    for kind in kinds() {
        let store = kind.shared();
        sense(&store, 0, &["old"], waits(600, 100_000));
        let asked = Arc::new(AtomicUsize::new(0));
        let restarts = i64::from(kind.cases(2_000, 200));
        for now in 0..restarts {
            let mut restarted = poker(&store, "p", &asked, PokeOutcome::NotYet);
            restarted.tick(at(now * 10)).unwrap();
            restarted.leave().unwrap();
        }
        // Until it is no longer young, three times; then once for each due time, all of which come between two workers.
        let usual = 3 + usize::try_from(restarts * 10 / 600).unwrap();
        let before = asked.load(Ordering::SeqCst);
        assert!((usual..=usual + 1).contains(&before), "{before} of {usual} pokes");
        let mut stays = poker(&store, "p", &asked, PokeOutcome::NotYet);
        for now in (0..600).step_by(kind.stride(10)) {
            stays.tick(at(restarts * 10 + now)).unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), before + 1);
    }
}

/// The store says that the worker's leases last for another half minute. It pokes its sensors meanwhile.
#[test]
fn a_clock_that_is_set_back_a_little_costs_no_due_time() {
    for store in stores() {
        sense(&store, 0, &["t"], waits(10, 1_000_000));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::NotYet);
        (0..=100).for_each(|now| drop(poker.tick(at(now)).unwrap()));
        asked.store(0, Ordering::SeqCst);
        (99..=149).for_each(|now| drop(poker.tick(at(now)).unwrap()));
        let asked = asked.load(Ordering::SeqCst);
        assert!((5..=6).contains(&asked), "{asked}");
    }
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_the_pokes() {
    for store in stores() {
        sense(&store, 100_000, &["t"], waits(10, 1_000_000));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::NotYet);
        poker.tick(at(100_000)).unwrap();
        asked.store(0, Ordering::SeqCst);
        for now in 90_000..90_100 {
            poker.tick(at(now)).unwrap();
        }
        let asked = asked.load(Ordering::SeqCst);
        assert!((10..=11).contains(&asked), "{asked}");
    }
}

#[test]
fn workers_that_split_the_codes_differently_refuse_to_share() {
    for store in stores() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut old = poker(&store, "old", &asked, PokeOutcome::NotYet);
        old.tick(at(0)).unwrap();
        let mut new = unkinded(&store, "new").shards(NonZeroU32::new(16).unwrap());
        let refused = new.tick(at(1)).unwrap_err().to_string();
        assert!(refused.starts_with("worker old splits 10000 shard codes into 4 shards"), "{refused}");
        old.leave().unwrap();
        assert_eq!(new.tick(at(2)).unwrap().shards, 16);
    }
}

/// Each poke takes as long as the lease, so a tick begins one at most. A machine so slow that the lease ends
/// before the first begins leaves even that one to the next tick.
#[test]
fn no_poke_begins_when_the_lease_is_about_to_end() {
    for store in stores() {
        let names: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        sense(&store, 0, &names.iter().map(String::as_str).collect::<Vec<_>>(), waits(10, 1_000));
        let lease = Duration::from_millis(120);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let slow = move |_: &PokeRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(lease);
            PokeOutcome::NotYet
        };
        let mut poker = unkinded(&store, "p").lease(lease).threads(1).kind("kind".try_into().unwrap(), slow);
        let began = Instant::now();
        while asked.load(Ordering::SeqCst) < 3 {
            let before = asked.load(Ordering::SeqCst);
            let report = poker.tick(at(0)).unwrap();
            let begun = asked.load(Ordering::SeqCst) - before;
            assert!(begun <= 1, "{begun} pokes of {lease:?} in a lease as long");
            assert_eq!((report.poked, report.next_due), (begun, Some(at(0))), "the rest is due: {report:?}");
            assert!(began.elapsed() < secs(120), "the rest is never poked");
        }
    }
}

#[test]
fn a_quiet_cycle_reads_the_change_counter_only() {
    let (store, reads) = Counting::over(MemoryStore::new());
    sense(&store, 0, &["t"], waits(1_000, 10_000));
    let asked = Arc::new(AtomicUsize::new(0));
    let mut poker = poker(&store, "p", &asked, PokeOutcome::NotYet);
    poker.tick(at(0)).unwrap();
    poker.tick(at(1)).unwrap();
    reads.store(0, Ordering::SeqCst);
    let report = poker.tick(at(2)).unwrap();
    assert_eq!((report.loaded, report.poked), (0, 0));
    assert_eq!(reads.load(Ordering::SeqCst), 1, "one transaction, that reads");
    assert_eq!(report.next_due, Some(at(3)), "to look for registrations");
}

#[test]
fn sensors_of_shards_whose_load_failed_are_loaded_later() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store));
        let store: Arc<dyn Store> = faults.clone();
        sense(&store, 0, &["t"], waits(10, 10_000));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::NotYet);
        // Fails the first transaction that reads: the load, after the shards were taken.
        faults.refuse(TxMode::Read, 1);
        assert!(poker.tick(at(0)).is_err());
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.sensors, report.poked), (1, 1));
    }
}

#[test]
fn a_log_that_panics_holds_up_nobody() {
    struct Panics;
    impl PokeLog for Panics {
        fn poked(&self, _: &SensorRecord, _: Timestamp, _: &PokeOutcome) {
            panic!("disk full");
        }
    }
    for store in stores() {
        sense(&store, 0, &["t"], waits(10, 100));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::Landed(None)).log(Panics);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.landed, report.log_panics), (1, 1));
    }
}

#[test]
fn an_answer_too_long_to_be_kept_fails_its_sensors_and_no_others() {
    for store in stores() {
        sense(&store, 0, &["long", "other"], waits(10, 100));
        let poke = |request: &PokeRequest| match request.context.as_str().contains("long") {
            true => PokeOutcome::Landed(Some("x".repeat(10 << 20))),
            false => PokeOutcome::Failed("y".repeat(10 << 20)),
        };
        let mut poker = unkinded(&store, "p").kind("kind".try_into().unwrap(), poke);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.landed, report.failed), (0, 2));
        let events = told(&store);
        assert!(events.iter().all(|event| event.reason == Some(EndReason::Failed)));
        let is_long = |message: &String| message.starts_with("landed with 10485760 bytes");
        assert!(events.iter().any(|event| event.message.as_ref().is_some_and(is_long)));
    }
}

/// Counts transactions: one for each that reads, a thousand for each that writes.
#[derive(Debug)]
struct Counting {
    inner: MemoryStore,
    transactions: Arc<AtomicUsize>,
}

impl Counting {
    fn over(inner: MemoryStore) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
        let transactions = Arc::new(AtomicUsize::new(0));
        (Arc::new(Self { inner, transactions: transactions.clone() }), transactions)
    }
}

impl Store for Counting {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let weight = if mode == TxMode::Read { 1 } else { 1_000 };
        self.transactions.fetch_add(weight, Ordering::SeqCst);
        self.inner.transact(mode, body)
    }
}

#[test]
fn a_sensor_that_was_forgotten_before_its_end_was_seen_is_not_poked_again() {
    for store in stores() {
        sense(&store, 0, &["gone", "stays"], waits(5, 1_000_000));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::NotYet);
        poker.tick(at(0)).unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let key = TaskKey::new("ns", "w", "r", "gone").unwrap();
        store.write(|tx| tx.mark(at(1), &[Mark::new(key.clone(), TaskState::Skipped, "x")])).unwrap();
        assert_eq!(
            store.write(|tx| Ok(raw(tx).forget_ended(TaskState::Skipped, at(2), at(2), 9)?)).unwrap(),
            1
        );
        let mut report = poker.tick(at(2)).unwrap();
        assert_eq!((report.sensors, report.loaded), (1, 1), "it reads anew what waits");
        report = poker.tick(at(3)).unwrap();
        assert_eq!((report.sensors, report.loaded), (1, 0), "once");
        for now in 3..40 {
            poker.tick(at(now)).unwrap();
        }
        let asked = asked.load(Ordering::SeqCst);
        assert!((8..=11).contains(&asked), "the other one goes on at its interval: {asked} pokes");
    }
}
