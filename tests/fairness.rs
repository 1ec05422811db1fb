//! Fair share, driven through the store in memory under a virtual clock: parts, turns and newcomers.
//!
//! `STATIONMASTER_FAIRNESS=long` makes ten times as many admissions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Definition, IfExists};
use stationmaster::id::LimitKey;
use stationmaster::ops::{AdmitRequest, Finish, Outcome};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::MemoryStore;
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};

/// SplitMix64: the same worlds on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What is left of a share's work, and what it has had.
struct Share {
    key: LimitKey,
    weight: u32,
    /// How many of its tasks wait.
    waiting: usize,
    held: i64,
    mean: f64,
    /// What it held while it had work, and what its part was then, in slots by microseconds.
    had: f64,
    part: f64,
    /// For how long it had work.
    worked: f64,
    started: usize,
}

struct World {
    store: MemoryStore,
    shares: Vec<Share>,
    of_share: HashMap<LimitKey, usize>,
    /// By their ends.
    running: BinaryHeap<Reverse<(i64, usize, i64, i64)>>,
    random: Random,
    now: i64,
    ticks: u64,
    enqueued: usize,
    /// Of which shares the latest tick granted tasks, in order.
    latest: Vec<usize>,
    admitted: usize,
}

impl World {
    fn new(slots: u32, weights: &[u32], means: &[f64], seed: u64) -> Self {
        let store = MemoryStore::new();
        let key = |n: usize| LimitKey::new(format!("share/{n:02}")).unwrap();
        let mut defined: Vec<Definition> = vec![PoolSpec::new("p", Slots::Limited(slots)).unwrap().into()];
        let mut shares = Vec::new();
        for (n, (weight, mean)) in weights.iter().zip(means).enumerate() {
            defined.push(LimitSpec::of(key(n)).weight(*weight).into());
            shares.push(Share {
                key: key(n),
                weight: *weight,
                waiting: 0,
                held: 0,
                mean: *mean,
                had: 0.0,
                part: 0.0,
                worked: 0.0,
                started: 0,
            });
        }
        store.write(|tx| tx.define(defined.clone(), IfExists::Replace)).unwrap();
        let of_share = shares.iter().enumerate().map(|(at, share)| (share.key.clone(), at)).collect();
        Self {
            store,
            shares,
            of_share,
            running: BinaryHeap::new(),
            random: Random(seed),
            now: 0,
            ticks: 0,
            enqueued: 0,
            latest: Vec::new(),
            admitted: 0,
        }
    }

    fn enqueue(&mut self, share: usize, tasks: usize) {
        let key = &self.shares[share].key;
        let named = self.enqueued;
        let task = |n: usize| {
            let name = TaskKey::new("n", "w", "r", (named + n).to_string()).unwrap();
            NewTask::new(name).pool("p".try_into().unwrap()).share(key.clone())
        };
        let tasks: Vec<NewTask> = (0..tasks).map(task).collect();
        self.store.write(|tx| tx.enqueue(Timestamp::from_micros(self.now), &tasks)).unwrap();
        self.enqueued += tasks.len();
        self.shares[share].waiting += tasks.len();
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let name = format!("tick {}", self.ticks).as_str().try_into().unwrap();
        let before = format!("tick {}", self.ticks - 1).as_str().try_into().unwrap();
        let order =
            AdmitRequest::new("w".try_into().unwrap(), name, usize::MAX, Duration::from_secs(1 << 40));
        let order = order.answered(before).started();
        let admission = self.store.write(|tx| tx.admit(Timestamp::from_micros(self.now), &order)).unwrap();
        self.latest.clear();
        for task in admission.granted {
            let at = self.of_share[task.lane.share.as_ref().unwrap()];
            let share = &mut self.shares[at];
            share.waiting -= 1;
            share.held += 1;
            share.started += 1;
            self.admitted += 1;
            self.latest.push(at);
            // Exponential, so that the ends of tasks are in no order.
            let lasts = -share.mean * (1.0 - self.random.part()).ln();
            let end = self.now + 1 + lasts as i64;
            self.running.push(Reverse((end, at, task.id.0, task.epoch)));
        }
    }

    /// Ends the task that ends next. Returns its share.
    fn end_next(&mut self) -> Option<usize> {
        let Reverse((end, at, id, epoch)) = self.running.pop()?;
        let passed = (end - self.now) as f64;
        let working = || self.shares.iter().filter(|share| share.waiting > 0);
        let weights: f64 = working().map(|share| f64::from(share.weight)).sum();
        let held: i64 = working().map(|share| share.held).sum();
        for share in self.shares.iter_mut().filter(|share| share.waiting > 0) {
            share.had += share.held as f64 * passed;
            share.part += held as f64 * f64::from(share.weight) / weights * passed;
            share.worked += passed;
        }
        self.now = end;
        let lease = LeaseRef::new(stationmaster::TaskId(id), epoch);
        let finish = [Finish::new(lease, Outcome::Success { value: None })];
        self.store.write(|tx| tx.finish(Timestamp::from_micros(end), &finish)).unwrap();
        self.shares[at].held -= 1;
        Some(at)
    }
}

/// How often fewer admissions than in the whole form.
fn smaller() -> usize {
    if std::env::var("STATIONMASTER_FAIRNESS").is_ok_and(|form| form == "long") { 1 } else { 10 }
}

const WEIGHTS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// Shares with weights 1 to 10, whose work lasts differently long, with backlogs of 10 to 100,000 in some order.
fn ten_shares(slots: u32, seed: u64) -> World {
    let mut random = Random(seed);
    let means: Vec<f64> = (0..10).map(|_| 1e6 * 100_f64.powf(random.part() - 0.5)).collect();
    let mut backlogs = vec![10, 100, 1_000, 3_000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000];
    for at in (1..backlogs.len()).rev() {
        backlogs.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut world = World::new(slots, &WEIGHTS, &means, seed);
    for (share, backlog) in backlogs.iter().enumerate() {
        world.enqueue(share, (backlog / smaller()).max(10));
    }
    let admissions = 100_000 / smaller();
    world.tick();
    while world.admitted < admissions && world.end_next().is_some() {
        world.tick();
    }
    assert!(world.admitted >= admissions, "work is left");
    world
}

#[test]
fn each_share_has_its_part_of_550_slots() {
    for seed in 0..2 {
        let world = ten_shares(550, seed);
        for share in &world.shares {
            let (error, slots) =
                ((share.had - share.part) / share.part, (share.had - share.part) / share.worked);
            println!(
                "seed {seed} weight {}: {:.3} % {slots:.3} slots, {} tasks",
                share.weight,
                100.0 * error,
                share.started
            );
            // Of a share that was served in a moment a part is left that is no whole number of slots.
            // One whose tasks all started at the first instant never waited.
            let is_fair = share.worked == 0.0
                || if share.started >= 100 { error.abs() < 0.02 } else { slots.abs() < 1.0 };
            assert!(is_fair, "seed {seed}, weight {}: {error}, {slots} slots", share.weight);
        }
        assert_eq!(world.store.read(|tx| tx.audit()).unwrap(), []);
    }
}

#[test]
fn each_share_is_within_one_slot_of_its_part_of_64() {
    for seed in 0..2 {
        let world = ten_shares(64, seed);
        for share in world.shares.iter().filter(|share| share.worked > 0.0) {
            let slots = (share.had - share.part) / share.worked;
            println!("seed {seed} weight {}: {slots:.3} slots, {} tasks", share.weight, share.started);
            assert!(slots.abs() < 1.0, "seed {seed}, weight {}: {slots} slots", share.weight);
        }
    }
}

/// With fewer slots than shares each has its turn after at most one of each other.
#[test]
fn with_few_slots_each_share_has_its_turn() {
    for slots in 1..=5 {
        let means: Vec<f64> = (0..10).map(|n| 1e5 * f64::from(1 + n * n)).collect();
        let mut world = World::new(slots, &WEIGHTS, &means, slots.into());
        // For how many grants each share has waited with nothing held, if it waits.
        let mut waits = [0_usize; 10];
        for _ in 0..600 {
            // Shares come and go.
            let share = world.random.below(10) as usize;
            if world.shares[share].waiting == 0 {
                let tasks = 1 + world.random.below(4) as usize;
                world.enqueue(share, tasks);
                waits[share] = 0;
            }
            world.tick();
            for granted in world.latest.clone() {
                for (share, wait) in waits.iter_mut().enumerate() {
                    let is_waiting = world.shares[share].waiting > 0 && world.shares[share].held == 0;
                    *wait = if is_waiting && share != granted { *wait + 1 } else { 0 };
                    assert!(*wait < 10, "share {share} of {slots} slots waited for {wait} grants");
                }
            }
            if let Some(ended) = world.end_next() {
                waits[ended] = 0;
            }
        }
        assert!(world.admitted > 100, "{}", world.admitted);
    }
}

/// The k-th of k newcomers starts with the k-th slot that comes free.
#[test]
fn newcomers_have_the_next_slots() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let (slots, new) = (2 + random.below(20), 1 + random.below(8) as usize);
        let weights: Vec<u32> = (0..2 + new).map(|_| 1 + random.below(1_000) as u32).collect();
        let mut world = World::new(slots as u32, &weights, &vec![1e6; 2 + new], seed);
        // Those that hold all slots have work for ever, and the first of them goes first by its name.
        world.enqueue(0, 500);
        world.enqueue(1, 500);
        world.tick();
        for _ in 0..random.below(40) {
            world.end_next();
            world.tick();
        }
        let mut due: VecDeque<usize> = VecDeque::new();
        for share in 2..2 + new {
            world.enqueue(share, 3);
            due.push_back(share);
        }
        while !due.is_empty() {
            world.end_next();
            world.tick();
            for granted in world.latest.clone() {
                let at = due.iter().position(|share| *share == granted);
                assert!(at.is_some(), "seed {seed}: share {granted} went before {due:?}");
                due.remove(at.unwrap());
            }
        }
    }
}
