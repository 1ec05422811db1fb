//! A process that works, and what it writes down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::admission::{IfExists, Subject};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, Result};
use stationmaster::id::LimitKey;
use stationmaster::ops::{Finish, Finished};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::Store;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::history::{Grant, LeaseId, Operation};
use stationmaster::{LeaseRef, NewTask, Renewal, TaskId, TaskKey, TaskRecord};

use crate::place::{Commits, Place};
use crate::respawn::say;

pub const POOLS: [(&str, u32); 3] = [("one", 1), ("three", 3), ("sixteen", 16)];

/// A key that tasks of a wild mood carry, and its maximum.
pub const KEY: (&str, u32) = ("key", 6);
/// The keys of a family with one maximum for each, and of another with one rate for each: starts in a second, and burst.
pub const FAMILY: (&str, u32) = ("each/", 4);
pub const RATES: (&str, u32, u32) = ("rate/", 6, 2);
/// Keys of these families.
pub const MEMBERS: u64 = 3;
/// The queue of some of the tasks of a wild mood.
const QUEUE: &str = "second";

/// Microseconds of a clock that all processes of the machine share.
pub fn instant() -> u64 {
    SystemClock.now().as_micros().unsigned_abs()
}

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mood {
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

/// The errors that a worker lives with: it goes on with the same handle, and what it asked for may have happened or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bears {
    /// Any error of the store ends the worker, and so fails the test.
    Nothing,
    /// A connection that was lost.
    LostConnections,
    /// Another writer that was first every time that the call was made again.
    Conflicts,
}

impl Bears {
    fn bears(self, error: &Error) -> bool {
        use stationmaster::error::StoreErrorKind::{Conflict, Indeterminate, Io};
        let Error::Store(error) = error else { return false };
        match self {
            Self::Nothing => false,
            Self::LostConnections => matches!(error.kind(), Io | Indeterminate),
            Self::Conflicts => error.kind() == Conflict,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub struct Orders {
    pub name: String,
    pub place: Place,
    pub seed: u64,
    pub micros: u64,
    pub mood: Mood,
    pub bears: Bears,
}

/// A line of a child's diary: written before a call, and again after it. A call that answered an error has no second line.
#[derive(Serialize, Deserialize)]
pub enum Line {
    Call {
        call: u64,
        at: u64,
        returned: bool,
        operation: Operation,
    },
    /// What the worker bore, by kind, so far.
    Errors(BTreeMap<String, usize>),
    /// These attempts surely ended their tasks.
    Succeeded(Vec<LeaseId>),
    /// These ended tasks may have been made ready again.
    Cleared(Vec<i64>),
}

pub fn write(line: &Line) {
    say(&serde_json::to_string(line).unwrap());
}

/// Calls, and the lines about them.
#[derive(Default)]
pub struct Diary {
    calls: u64,
}

impl Diary {
    /// Makes a call between two lines.
    pub fn call<T>(&mut self, asked: Operation, call: impl FnOnce() -> Result<(T, Operation)>) -> Result<T> {
        let id = self.calls;
        self.calls += 1;
        let line = |returned, operation| Line::Call { call: id, at: instant(), returned, operation };
        write(&line(false, asked));
        let (answer, operation) = call()?;
        write(&line(true, operation));
        Ok(answer)
    }
}

/// What became of a commit.
#[cfg(all(unix, feature = "postgres"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    Done,
    Undone,
    Unknown,
}

#[cfg(all(unix, feature = "postgres"))]
impl Diary {
    /// Commits what a transaction did. No one sees any of it before.
    pub fn commit(&mut self, operations: &[Operation], commit: impl FnOnce() -> Commit) -> Commit {
        let first = self.calls;
        self.calls += operations.len() as u64;
        let tell = |returned, operation: fn(&Operation) -> Operation| {
            for (call, asked) in (first..).zip(operations) {
                write(&Line::Call { call, at: instant(), returned, operation: operation(asked) });
            }
        };
        tell(false, Operation::clone);
        let became = commit();
        match became {
            Commit::Done => tell(true, Operation::clone),
            Commit::Undone => tell(true, |_| Operation::End(vec![])),
            Commit::Unknown => {}
        }
        became
    }
}

struct Worker {
    orders: Orders,
    store: Arc<dyn Store>,
    admitter: Admitter,
    upkeep: Upkeep,
    random: Random,
    diary: Diary,
    held: Vec<LeaseRef>,
}

impl Worker {
    fn enqueue(&mut self, round: u64) -> Result<()> {
        let tasks: Vec<NewTask> = (0..6_u64)
            .map(|n| {
                let (pool, slots) = POOLS[n as usize % 3];
                let key =
                    TaskKey::new("contention", &self.orders.name, round.to_string(), n.to_string()).unwrap();
                let task = NewTask::new(key)
                    .pool(pool.try_into().unwrap())
                    .pool_slots((1 + self.random.below(5) as u32).min(slots))
                    .priority(self.random.below(2) as i32)
                    .lease_loss(LeaseLoss::Requeue { at_most: u32::MAX });
                if self.orders.mood == Mood::Wild { self.needing_more(task, n as usize) } else { task }
            })
            .collect();
        self.store.write(|tx| tx.enqueue(SystemClock.now(), &tasks))?;
        Ok(())
    }

    /// Makes a task need a second pool, carry keys, and be in another queue, each by chance.
    fn needing_more(&mut self, mut task: NewTask, n: usize) -> NewTask {
        if self.random.below(3) == 0 {
            let (pool, _) = POOLS[(n + 1) % 3];
            task = task.also(pool.try_into().unwrap(), 1);
        }
        let key = |text: &str| LimitKey::new(text).unwrap();
        if self.random.below(4) == 0 {
            task = task.limit_count(key(KEY.0), 1 + self.random.below(3) as u32);
        }
        for family in [FAMILY.0, RATES.0] {
            if self.random.below(4) == 0 {
                task = task.limit(key(&format!("{family}{}", self.random.below(MEMBERS))));
            }
        }
        if self.random.below(4) == 0 { task.queue(QUEUE.try_into().unwrap()) } else { task }
    }

    /// Pauses something for a moment. A process that dies meanwhile leaves it paused, until another one
    /// resumes all.
    fn pause(&mut self) -> Result<()> {
        let key = |text: &str| LimitKey::new(text).unwrap();
        let subject = match self.random.below(5) {
            0 => Subject::Pool(POOLS[self.random.below(3) as usize].0.try_into()?),
            1 => Subject::Queue(QUEUE.try_into()?),
            2 => Subject::Key(key(KEY.0)),
            3 => Subject::Key(key(&format!("{}0", FAMILY.0))),
            _ => Subject::Family(key(RATES.0)),
        };
        let name = match &subject {
            Subject::Queue(name) => name.to_string(),
            Subject::Pool(name) => name.to_string(),
            Subject::Key(key) | Subject::Family(key) => key.to_string(),
            other => panic!("{other:?}"),
        };
        for pauses in [true, false] {
            let operation = Operation::Pause(name.clone(), pauses);
            let Self { diary, store, .. } = self;
            diary.call(operation.clone(), || {
                let subjects = std::slice::from_ref(&subject);
                store.write(|tx| if pauses { tx.pause(subjects) } else { tx.resume(subjects) })?;
                Ok(((), operation))
            })?;
            if pauses {
                std::thread::sleep(Duration::from_millis(self.random.below(8)));
                self.admit()?;
            }
        }
        Ok(())
    }

    /// Resumes whatever is paused.
    fn resume_all(&mut self) -> Result<()> {
        let key = |text: &str| LimitKey::new(text).unwrap();
        let mut subjects: Vec<(String, Subject)> = Vec::new();
        for (pool, _) in POOLS {
            subjects.push((pool.into(), Subject::Pool(pool.try_into()?)));
        }
        subjects.push((QUEUE.into(), Subject::Queue(QUEUE.try_into()?)));
        for name in [KEY.0.to_owned(), format!("{}0", FAMILY.0)] {
            subjects.push((name.clone(), Subject::Key(key(&name))));
        }
        subjects.push((RATES.0.into(), Subject::Family(key(RATES.0))));
        let Self { diary, store, .. } = self;
        for (name, subject) in subjects {
            diary.call(Operation::Pause(name.clone(), false), || {
                store.write(|tx| tx.resume(std::slice::from_ref(&subject)))?;
                Ok(((), Operation::Pause(name, false)))
            })?;
        }
        Ok(())
    }

    fn admit(&mut self) -> Result<()> {
        let Self { diary, admitter, .. } = self;
        let granted = diary.call(Operation::Admit(vec![]), || {
            let granted = admitter.admit(SystemClock.now(), 6)?.granted;
            let grants = Operation::Admit(granted.iter().map(grant).collect());
            Ok((granted, grants))
        })?;
        self.held.extend(granted.iter().map(|task| task.lease_ref()));
        Ok(())
    }

    fn renew(&mut self) -> Result<()> {
        let (held, length) = (self.held.clone(), self.orders.mood.lease());
        let now = SystemClock.now();
        let until = (now + length).as_micros().unsigned_abs();
        let Self { diary, store, .. } = self;
        self.held = diary.call(Operation::Renew(ids(&held), until), || {
            let renewals = store.write(|tx| tx.renew(now, length, &held))?;
            let those = |fits: fn(Renewal) -> bool| -> Vec<LeaseRef> {
                held.iter()
                    .zip(&renewals)
                    .filter(|(_, renewal)| fits(**renewal))
                    .map(|(lease, _)| *lease)
                    .collect()
            };
            // A busy lease is still held, but was not promised to last.
            let kept = those(|renewal| !renewal.is_lost());
            let renewed = those(|renewal| renewal == Renewal::Renewed);
            let operation = Operation::Renew(ids(&renewed), until);
            Ok((kept, operation))
        })?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        let Self { diary, store, orders, .. } = self;
        diary.call(Operation::End(ids(&held)), || {
            let finishes: Vec<Finish> = held.iter().map(|lease| Finish::success(*lease)).collect();
            let finished = store.write(|tx| tx.finish(SystemClock.now(), &finishes))?;
            let accepted = |finished: &Finished| *finished != Finished::Stale;
            assert!(orders.mood == Mood::Wild || finished.iter().all(accepted), "a lease was lost");
            let ended: Vec<LeaseRef> = held
                .iter()
                .zip(&finished)
                .filter(|(_, done)| accepted(done))
                .map(|(lease, _)| *lease)
                .collect();
            Ok(((), Operation::End(ids(&ended))))
        })
    }

    fn reap(&mut self) -> Result<()> {
        let Self { diary, upkeep, .. } = self;
        diary.call(Operation::Reap(vec![]), || {
            let reaped = upkeep.tick(SystemClock.now())?.reaped;
            let leases: Vec<LeaseRef> = reaped.iter().map(|reaped| reaped.task.lease_ref()).collect();
            Ok(((), Operation::Reap(ids(&leases))))
        })
    }

    fn resize(&mut self) -> Result<()> {
        let (pool, slots) = POOLS[self.random.below(3) as usize];
        let slots = 1 + self.random.below(u64::from(slots) + 4) as u32;
        let operation = Operation::Resize(pool.into(), Some(slots));
        let Self { diary, store, .. } = self;
        diary.call(operation.clone(), || {
            let spec = PoolSpec::new(pool, Slots::Limited(slots))?;
            store.write(|tx| tx.define([&spec], IfExists::Replace))?;
            Ok(((), operation))
        })
    }

    fn round(&mut self, round: u64) -> Result<()> {
        self.enqueue(round)?;
        self.admit()?;
        std::thread::sleep(Duration::from_micros(self.random.below(900)));
        if self.orders.mood == Mood::Wild {
            match self.random.below(12) {
                0 => self.held.clear(),
                1 | 2 => self.renew()?,
                3 => self.resize()?,
                4 | 5 => self.reap()?,
                7 => self.pause()?,
                8 if self.random.below(4) == 0 => self.resume_all()?,
                // Holds them past their expiry, and tries to use them.
                6 => std::thread::sleep(self.orders.mood.lease() * 2),
                _ => {}
            }
        }
        self.finish()
    }

    fn work(&mut self) {
        let end = Instant::now() + Duration::from_micros(self.orders.micros);
        let mut errors = BTreeMap::new();
        for round in 1.. {
            if Instant::now() >= end {
                return;
            }
            if let Err(error) = self.round(round) {
                assert!(self.orders.bears.bears(&error), "{error:?}");
                let Error::Store(error) = error else { return };
                *errors.entry(format!("{:?}", error.kind())).or_default() += 1;
                write(&Line::Errors(errors.clone()));
            }
        }
    }
}

/// What a grant takes, and what it belongs to: its queue, and the family of each of its keys.
pub fn grant(task: &TaskRecord) -> Grant {
    let expires_at = task.lease.as_ref().unwrap().expires_at.as_micros().unsigned_abs();
    let mut grant = Grant::new(task.id.0, task.epoch, task.lane.pool.as_str(), task.lane.slots, expires_at);
    grant.also.extend(task.lane.also.iter().map(|(pool, slots)| (pool.to_string(), *slots)));
    for (key, count) in task.lane.counted() {
        grant.also.push((key.to_string(), count));
        let family = key.as_str().split_inclusive('/').next().filter(|family| family.ends_with('/'));
        grant.also.extend(family.map(|family| (family.to_owned(), 0)));
    }
    grant.also.push((task.lane.queue.to_string(), 0));
    grant
}

pub fn ids(leases: &[LeaseRef]) -> Vec<LeaseId> {
    leases
        .iter()
        .map(|LeaseRef { id: TaskId(task), epoch, .. }| LeaseId { task: *task, epoch: *epoch })
        .collect()
}

pub fn work(orders: Orders) {
    let open = || {
        let store = orders.place.try_open(Commits::Quick)?;
        let to_tick = orders.place.try_open_to_tick(&store, Commits::Quick)?;
        Ok((store, to_tick))
    };
    let (store, to_tick) = loop {
        match open() {
            Ok(stores) => break stores,
            Err(error) => assert!(orders.bears.bears(&error), "{error:?}"),
        }
    };
    let name = orders.name.as_str().try_into().unwrap();
    let mut worker = Worker {
        admitter: Admitter::new(to_tick, name).lease(orders.mood.lease()),
        upkeep: Upkeep::new(store.clone()).grace(Duration::ZERO),
        random: Random(orders.seed),
        diary: Diary::default(),
        held: Vec::new(),
        orders,
        store,
    };
    say("ready");
    worker.work();
}
