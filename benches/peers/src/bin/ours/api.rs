//! How this benchmark uses the crate. When the crate's interface changes, this file changes, and no other one.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::id::RequestId;
use stationmaster::ops::{AdmitRequest, Finish, Finished, Mark};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::service::{Admitter, Attempt, LoopHandle, Upkeep, Worker, drive};
pub use stationmaster::store::postgres::Wake;
use stationmaster::store::postgres::tokio_postgres::Transaction;
use stationmaster::store::postgres::{self, Listening, PostgresOptions, Schema};
use stationmaster::store::sqlite::SqliteOptions;
use stationmaster::store::{Durability, PostgresStore, SqliteStore, Store, Tx};
use stationmaster::{LeaseRef, NewTask, Renewal, Result, TaskKey, TaskRecord, TaskState};

use crate::program::{self, ERRORS, LOST};

/// The pool of all tasks.
const POOL: &str = "work";

/// What a worker's store may have: one for each of 24 places, one to admit, one that listens, and the two that
/// the store keeps for renewals and services. Those that are not needed are not made.
pub const CONNECTIONS: u32 = 24 + 1 + 1 + 2;

/// When tasks become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Now,
    Tomorrow,
}

/// A store and one holder of leases.
pub struct Ours {
    store: Arc<dyn Store>,
    clock: Box<dyn Clock + Send + Sync>,
    holder: String,
    lease: Duration,
    ticks: AtomicU64,
    /// The last tick that granted something and was heard of.
    answered: Mutex<Option<RequestId>>,
    /// Wakes who waits for tasks.
    idle: LoopHandle,
    _listening: Option<Listening>,
}

impl Ours {
    /// Connects one that only sends.
    pub fn sender(wake: Wake) -> Self {
        let store = connect(wake, CONNECTIONS);
        let clock = Box::new(store.clock());
        Self::over(Arc::new(store), clock, None, LoopHandle::new())
    }

    /// Connects one that works, and is woken when tasks may be ready.
    pub fn worker(lease: Duration) -> Self {
        Self::worker_on(CONNECTIONS, lease)
    }

    /// The same with at most so many connections, the one that listens included.
    pub fn worker_on(connections: u32, lease: Duration) -> Self {
        let store = connect(Wake::default(), connections);
        let (idle, clock) = (LoopHandle::new(), Box::new(store.clock()));
        let listening = idle.listen(&store).expect("the server listens");
        Self { lease, ..Self::over(Arc::new(store), clock, Some(listening), idle) }
    }

    /// Opens a file of SQLite, with a flush each commit.
    pub fn sqlite(path: &str) -> Self {
        let options = SqliteOptions::new().durability(Durability::Power);
        let store = SqliteStore::open(path, options).expect("a file");
        Self::over(Arc::new(store), Box::new(SystemClock), None, LoopHandle::new())
    }

    fn over(
        store: Arc<dyn Store>,
        clock: Box<dyn Clock + Send + Sync>,
        listening: Option<Listening>,
        idle: LoopHandle,
    ) -> Self {
        let holder = format!("worker-{}-{}", std::process::id(), program::micros());
        let lease = Duration::from_secs(60);
        Self {
            store,
            clock,
            holder,
            lease,
            ticks: AtomicU64::new(0),
            answered: Mutex::default(),
            idle,
            _listening: listening,
        }
    }

    /// Opens this many connections, as its peers do when they open a pool.
    pub fn connect(&self, connections: usize) {
        let all_have_one = Barrier::new(connections);
        let take = || {
            self.insist(|ours| {
                ours.store.read(|tx| {
                    tx.all_pools()?;
                    all_have_one.wait();
                    Ok(())
                })
            });
        };
        std::thread::scope(|scope| (0..connections).for_each(|_| drop(scope.spawn(take))));
    }

    /// Defines the pool. `unlimited`, or a number of slots.
    pub fn define(&self, slots: &str) {
        let slots = slots.parse().map_or(Slots::Unlimited, Slots::Limited);
        let pool = PoolSpec::new(POOL, slots).expect("a pool");
        self.insist(|ours| ours.store.write(|tx| tx.define([&pool], IfExists::Replace)));
    }

    /// Enqueues tasks of these numbers, in one transaction.
    pub fn enqueue(&self, name: &str, numbers: std::ops::Range<u64>, due: Due) {
        let now = self.clock.now();
        let task = |number| match due {
            Due::Now => task(name, number),
            Due::Tomorrow => task(name, number).not_before(now + Duration::from_secs(86_400)),
        };
        let tasks: Vec<NewTask> = numbers.map(task).collect();
        self.insist(|ours| ours.store.write(|tx| tx.last(|tx| tx.enqueue(now, &tasks))));
    }

    /// Ends these attempts, grants and starts at most this many tasks, all in one transaction.
    pub fn step(&self, ends: &[LeaseRef], most: usize) -> Vec<TaskRecord> {
        self.tick(ends, most, AdmitRequest::started)
    }

    /// Grants one task, which is still to be started.
    pub fn grant_queued(&self) -> Vec<TaskRecord> {
        self.tick(&[], 1, |order| order)
    }

    fn tick(
        &self,
        ends: &[LeaseRef],
        most: usize,
        starts: fn(AdmitRequest) -> AdmitRequest,
    ) -> Vec<TaskRecord> {
        let request: RequestId = name(&format!("{}-{}", self.holder, self.ticks.fetch_add(1, Relaxed)));
        let mut order = starts(AdmitRequest::new(name(&self.holder), request.clone(), most, self.lease));
        if let Some(before) = self.answered.lock().expect("not poisoned").clone() {
            order = order.answered(before);
        }
        let granted = self.insist(|ours| {
            let now = ours.clock.now();
            ours.store.write(|tx| {
                succeed(tx, now, ends)?;
                tx.last(|tx| tx.admit(now, &order)).map(|admission| admission.granted)
            })
        });
        if !granted.is_empty() {
            *self.answered.lock().expect("not poisoned") = Some(request);
        }
        granted
    }

    /// Ends these attempts, in one transaction.
    pub fn end(&self, ends: &[LeaseRef]) {
        self.insist(|ours| ours.store.write(|tx| tx.last(|tx| succeed(tx, ours.clock.now(), ends))));
    }

    /// Fails these attempts: they are tried again.
    pub fn fail(&self, ends: &[LeaseRef]) {
        self.finish(ends.iter().map(|lease| Finish::failed(*lease, "on purpose")).collect());
    }

    /// Gives these leases back: the tasks are ready again.
    pub fn give_back(&self, ends: &[LeaseRef]) {
        self.finish(ends.iter().map(|lease| Finish::given_back(*lease)).collect());
    }

    fn finish(&self, ends: Vec<Finish>) {
        self.insist(|ours| ours.store.write(|tx| tx.finish(ours.clock.now(), &ends)));
    }

    /// Renews these leases. Those that were lost are counted.
    pub fn renew(&self, leases: &[LeaseRef]) {
        let renew =
            |ours: &Self| ours.store.write(|tx| tx.last(|tx| tx.renew(ours.clock.now(), ours.lease, leases)));
        let kept = self.insist(renew);
        LOST.fetch_add(kept.into_iter().filter(|kept| Renewal::is_lost(*kept)).count() as u64, Relaxed);
    }

    /// Waits until tasks may be ready since this number was read, and at most so long.
    pub fn wait_since(&self, seen: u64, most: Duration) {
        self.idle.wait_since(seen, most);
    }

    pub fn seen(&self) -> u64 {
        self.idle.seen()
    }

    /// Admits for ever, as a loop with nothing else to do.
    pub fn drive_admitter(&self) {
        let mut admitter = Admitter::new(Arc::clone(&self.store), name(&self.holder));
        self.drive(&mut admitter);
    }

    /// Runs tasks as the crate's worker does, on threads, until the process ends.
    pub fn run_worker(&self, places: usize, handler: impl Fn(&TaskRecord) + Send + Sync + 'static) {
        let worker = self.new_worker(places).handler(move |attempt: &Attempt| handler(attempt.task()));
        worker.run(&self.idle).expect("a worker");
    }

    /// The same with handlers that are futures.
    pub fn run_worker_async(&self, places: usize, handler: impl Fn(&TaskRecord) + Send + Sync + 'static) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let handler = Arc::new(handler);
        let worker = self.new_worker(places).handler_async(runtime.handle(), move |attempt: Attempt| {
            let handler = handler.clone();
            async move { handler(attempt.task()) }
        });
        runtime.block_on(worker.run_async(&self.idle)).expect("a worker");
    }

    fn new_worker(&self, places: usize) -> Worker {
        Worker::new(Arc::clone(&self.store), name(&self.holder)).places(places).lease(self.lease)
    }

    /// Reaps for ever.
    pub fn drive_upkeep(&self) {
        let mut upkeep = Upkeep::new(Arc::clone(&self.store)).grace(Duration::from_secs(5));
        self.drive(&mut upkeep);
    }

    fn drive<S: stationmaster::service::Service>(&self, service: &mut S) {
        drive(service, &*self.clock, &self.idle, Duration::from_secs(1), |_| ControlFlow::Continue(()));
    }

    /// Repeats a call until it works, as a host does after `Busy`.
    fn insist<T>(&self, mut call: impl FnMut(&Self) -> Result<T>) -> T {
        loop {
            match call(self) {
                Ok(result) => return result,
                Err(error) => {
                    if ERRORS.fetch_add(1, Relaxed) < 3 {
                        eprintln!("{}: {error}", self.holder);
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

fn connect(wake: Wake, connections: u32) -> PostgresStore {
    PostgresStore::connect(&program::url(), PostgresOptions::new().wake(wake).connections(connections))
        .expect("a store")
}

fn name<T: TryFrom<String, Error = stationmaster::error::Invalid>>(text: &str) -> T {
    T::try_from(text.to_owned()).expect("a name")
}

fn key(name: &str, number: u64) -> TaskKey {
    TaskKey::new("peers", "nothing", "run", format!("{name}-{number}")).expect("a key")
}

fn task(kind: &str, number: u64) -> NewTask {
    NewTask::new(key(kind, number)).pool(name(POOL)).payload(format!("{{\"n\":{number}}}"))
}

/// Returns the number that the payload holds.
pub fn number_of(task: &TaskRecord) -> u64 {
    let digits = task.payload.chars().filter(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}

/// Ends attempts well. Those whose lease was lost are counted.
fn succeed(tx: &mut Tx<'_>, now: stationmaster::Timestamp, ends: &[LeaseRef]) -> Result<()> {
    if ends.is_empty() {
        return Ok(());
    }
    let ends: Vec<Finish> = ends.iter().map(|lease| Finish::success(*lease)).collect();
    let stale = tx.finish(now, &ends)?.iter().filter(|end| **end == Finished::Stale).count();
    LOST.fetch_add(stale as u64, Relaxed);
    Ok(())
}

/// What a host does in its own transaction, on tasks of its own.
pub async fn as_host(transaction: &Transaction<'_>, verb: &str, number: u64, own: Option<TaskRecord>) {
    let (verb, now) = (verb.to_owned(), SystemClock.now());
    let body = move |tx: &mut Tx<'_>| {
        let lease = own.as_ref().map(TaskRecord::lease_ref);
        match (verb.as_str(), lease, &own) {
            ("enqueue", ..) => drop(tx.enqueue(now, &[task("host", number)])?),
            ("start", Some(lease), _) => drop(tx.start(now, &[lease])?),
            ("renew", Some(lease), _) => drop(tx.renew(now, Duration::from_secs(600), &[lease])?),
            ("finish", Some(lease), _) => succeed(tx, now, &[lease])?,
            ("register", Some(lease), _) => {
                let settings = Settings::new(Duration::from_secs(60), Duration::from_secs(3_600))?;
                let context = PokeContext::from_json(&format!("{{\"n\":{number}}}"))?;
                drop(tx.register(now, &[NewSensor::new(lease, name("kind"), context, settings)])?);
            }
            ("cancel", _, Some(own)) => {
                drop(tx.mark(now, &[Mark::new(own.key.clone(), TaskState::Skipped, "cancelled")])?);
            }
            (other, ..) => panic!("no verb {other}, or no task for it"),
        }
        Ok(())
    };
    postgres::tx(transaction, &Schema::default(), body).await.expect("the host's statements");
}
