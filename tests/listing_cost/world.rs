//! A store with a number of tasks in every state, of which each list wants a few.

use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::id::{Holder, LimitKey, PoolName, QueueName};
use stationmaster::ops::{AdmitRequest, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::Store;
use stationmaster::task::TaskQuery;
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState, Timestamp};

/// Tasks of a call.
const PIECE: usize = 10_000;

/// The number of rare tasks, however many others there are: two full pages and a partial one.
const RARE: usize = 250;

/// What the tasks of one part are.
#[derive(Clone, Copy)]
enum Part {
    Ended,
    Failing,
    Sensing,
    Leased,
    Waiting,
    Later,
}

pub struct World<'a> {
    store: &'a dyn Store,
    ticks: usize,
}

fn at(second: usize) -> Timestamp {
    Timestamp::from_micros(second as i64 * 1_000_000)
}

fn name<T: TryFrom<&'static str, Error = stationmaster::error::Invalid>>(text: &'static str) -> T {
    text.try_into().unwrap()
}

impl World<'_> {
    /// The lists that `docs/listing.md` says read nothing but what they return. Each has at least two pages.
    pub fn lists() -> Vec<(&'static str, TaskQuery)> {
        let rare = || name::<QueueName>("rare");
        let namespace = TaskQuery::all().namespace(name("small"));
        let workflow = namespace.clone().workflow(name("w"));
        vec![
            ("all", TaskQuery::all()),
            ("all of a namespace", namespace),
            ("all of a workflow", workflow.clone()),
            ("all of a run", workflow.run(name("r"))),
            ("waiting", TaskQuery::waiting()),
            (
                "waiting, due within an hour",
                TaskQuery::waiting().due_since(at(90_000)).due_before(at(93_600)),
            ),
            ("waiting in a queue", TaskQuery::waiting().queue(rare())),
            ("waiting for a pool", TaskQuery::waiting().pool(name::<PoolName>("rare"))),
            ("waiting with a key", TaskQuery::waiting().limit_key(name::<LimitKey>("rare"))),
            ("scheduled", TaskQuery::new([TaskState::Scheduled])),
            ("up for retry", TaskQuery::new([TaskState::UpForRetry])),
            ("up for retry in a queue", TaskQuery::new([TaskState::UpForRetry]).queue(rare())),
            ("leased", TaskQuery::leased()),
            ("leased by a holder", TaskQuery::leased().holder(name("rare"))),
            ("sensing", TaskQuery::sensing()),
            ("sensing in a queue", TaskQuery::sensing().queue(rare())),
            ("ended", TaskQuery::ended()),
            ("ended since", TaskQuery::ended().ended_since(at(70_000))),
            ("failed", TaskQuery::new([TaskState::Failed])),
        ]
    }

    /// Fills an empty store: more than half have ended, a third waits, some are due later or tried again. Counts read each
    /// lease and each sensing task, so of these there are as many in every store.
    pub fn fill(store: &dyn Store, tasks: usize) {
        let pools = ["wide", "rare"].map(|pool| PoolSpec::new(pool, Slots::Unlimited).unwrap());
        store.write(|tx| tx.define(pools.clone(), IfExists::Replace)).unwrap();
        let mut world = World { store, ticks: 0 };
        let parts = [
            (Part::Ended, tasks * 55 / 100),
            (Part::Failing, tasks * 5 / 100),
            (Part::Sensing, RARE),
            (Part::Leased, RARE),
            (Part::Waiting, tasks * 35 / 100),
            (Part::Later, tasks * 5 / 100),
        ];
        for (part, count) in parts {
            world.add(part, count, false);
            world.add(part, RARE, true);
        }
    }

    /// Adds tasks of a part; rare ones have names of their own.
    fn add(&mut self, part: Part, count: usize, is_rare: bool) {
        for from in (0..count).step_by(PIECE) {
            let numbers = from..count.min(from + PIECE);
            let news: Vec<NewTask> = numbers.map(|number| new(part, number, is_rare)).collect();
            // The rare ones ended last.
            let second = if is_rare { 70_001 } else { 1 + from / PIECE };
            self.store.write(|tx| tx.enqueue(at(second), &news)).unwrap();
            match part {
                Part::Waiting | Part::Later => {}
                _ => self.run(part, second, is_rare),
            }
        }
    }

    fn run(&mut self, part: Part, second: usize, is_rare: bool) {
        let holder: Holder = if is_rare { name("rare") } else { name("many") };
        loop {
            self.ticks += 1;
            let request = format!("tick-{}", self.ticks).as_str().try_into().unwrap();
            let length = Duration::from_secs(1_000_000);
            let order = AdmitRequest::new(holder.clone(), request, PIECE, length).started();
            let granted = self.store.write(|tx| tx.admit(at(second), &order)).unwrap().granted;
            if granted.is_empty() {
                return;
            }
            self.leave(part, second, &granted);
        }
    }

    fn leave(&self, part: Part, second: usize, granted: &[TaskRecord]) {
        let finish = |task: &TaskRecord| match part {
            Part::Failing => Finish::failed(task.lease_ref(), "no route to host"),
            _ if task.key.map_index.is_some() => Finish::failed(task.lease_ref(), "out of memory"),
            _ => Finish::success(task.lease_ref()),
        };
        let sensor = |task: &TaskRecord| {
            let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
            let context = PokeContext::from_json("{\"path\":\"/in\"}").unwrap();
            NewSensor::new(task.lease_ref(), name("kind"), context, Settings::new(minute, day).unwrap())
        };
        let left = match part {
            Part::Sensing => {
                let sensors: Vec<NewSensor> = granted.iter().map(sensor).collect();
                self.store.write(|tx| tx.register(at(second), &sensors).map(drop))
            }
            Part::Ended | Part::Failing => {
                let ends: Vec<Finish> = granted.iter().map(finish).collect();
                self.store.write(|tx| tx.finish(at(second), &ends).map(drop))
            }
            Part::Leased | Part::Waiting | Part::Later => Ok(()),
        };
        left.unwrap();
    }
}

fn new(part: Part, number: usize, is_rare: bool) -> NewTask {
    let task = format!("{}-{number}", part as u8);
    let key = match is_rare {
        true => TaskKey::new("small", "w", "r", task),
        false => TaskKey::new("large", format!("w{}", number % 10), format!("r{}", number / 1_000), task),
    };
    // A fifth of what ends fails.
    let key = if number.is_multiple_of(5) { key.unwrap().mapped(1) } else { key.unwrap() };
    let mut new = NewTask::new(key).payload("{\"n\":1}");
    new = match is_rare {
        true => new.pool(name("rare")).queue(name("rare")).limit(name("rare")),
        false => new.pool(name("wide")),
    };
    match part {
        Part::Failing => new.retry(RetryPolicy::fixed(Duration::from_secs(200_000)).build().unwrap()),
        // The rare ones become due within the hour that is asked for.
        Part::Later if is_rare => new.not_before(at(90_000 + number)),
        Part::Later => new.not_before(at(100_000 + number)),
        _ => new,
    }
}
