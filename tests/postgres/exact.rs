//! Slots that were kept come back, and the store's own calls never deadlock. `tests/contention` has what is exact
//! beside open hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::id::SensorKind;
use stationmaster::ops::{Finish, Mark, StopBeforeStart};
use stationmaster::run::{RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::service::Admitter;
use stationmaster::store::contract::Ending;
use stationmaster::store::{PostgresStore, Store, Tx, TxMode};
use stationmaster::task::{LeaseLoss, TaskRecord, TaskState};
use stationmaster::{LeaseRef, NewTask, Result, TaskId, TaskKey};

use crate::postgres_server::host::Notify;
use crate::postgres_server::{OwnServer, Plain};
use crate::scratch::{Scratch, url};
use crate::{pool, pool_name, task};

fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
    NewSensor::new(lease, SensorKind::new("k").unwrap(), PokeContext::from_json("{}").unwrap(), settings)
}

/// How many tasks fill the pool.
const KEPT: usize = 12;

/// Ends those sensors in this way.
type End = fn(&mut Tx<'_>, &[TaskRecord]) -> Result<()>;

fn end_as(tx: &mut Tx<'_>, tasks: &[TaskRecord], reason: EndReason, to: TaskState) -> Result<()> {
    let ends: Vec<(LeaseRef, Ending)> =
        tasks.iter().map(|task| (task.lease_ref(), Ending::new(reason, to))).collect();
    assert!(tx.end_sensors(SystemClock.now(), &ends)?.iter().all(|ended| *ended));
    Ok(())
}

/// Each way in which a task that kept its slots gives them back.
const ENDS: [(&str, End); 4] = [
    ("landed", |tx, tasks| end_as(tx, tasks, EndReason::Landed, TaskState::Success)),
    ("resumed", |tx, tasks| end_as(tx, tasks, EndReason::Landed, TaskState::Scheduled)),
    ("timed out", |tx, tasks| end_as(tx, tasks, EndReason::TimedOut, TaskState::Failed)),
    ("cancelled", |tx, tasks| {
        let marks: Vec<Mark> =
            tasks.iter().map(|task| Mark::new(task.key.clone(), TaskState::Skipped, "no")).collect();
        tx.mark(SystemClock.now(), &marks).map(drop)
    }),
];

/// A pool that is full of tasks that kept their slots drains, also those that wait for the same pool again.
#[test]
fn kept_slots_come_back() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let scratch = Scratch::new();
        let store = Arc::new(scratch.open(|options| options));
        let mut keeps = pool("keeps", u32::try_from(2 * KEPT).unwrap());
        keeps.sensing_keeps_slots = true;
        let tasks: Vec<NewTask> =
            (0..2 * KEPT).map(|n| task(&n.to_string()).pool(pool_name("keeps")).pool_slots(2)).collect();
        store
            .write(|tx| {
                tx.define([&keeps], IfExists::Replace)?;
                tx.enqueue(SystemClock.now(), &tasks)
            })
            .unwrap();
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
        let mut admit = || admitter.admit(SystemClock.now(), 99).unwrap().granted;
        let held: Vec<LeaseRef> = admit().iter().map(TaskRecord::lease_ref).collect();
        assert_eq!(held.len(), KEPT);
        let registered = store.write(|tx| {
            tx.start(SystemClock.now(), &held)?;
            tx.register(SystemClock.now(), &held.iter().copied().map(sensor).collect::<Vec<_>>())
        });
        assert!(registered.unwrap().iter().all(|registered| registered.is_waiting()));
        assert_eq!(admit().len(), 0, "sensors keep the pool full");

        let ids: Vec<TaskId> = held.iter().map(|lease| lease.id).collect();
        let sensing: Vec<TaskRecord> =
            store.read(|tx| tx.tasks_by_id(&ids)).unwrap().into_iter().flatten().collect();
        let host = Plain::connect(&url());
        let mut granted = Vec::new();
        for ((how, end), tasks) in ENDS.iter().zip(sensing.chunks(KEPT / ENDS.len())) {
            // Rolled back, nothing comes back.
            for last in ["ROLLBACK", "COMMIT"] {
                host.ask(&format!("BEGIN ISOLATION LEVEL {level}"));
                host.call(&scratch.0, Notify::Yes, |tx| end(tx, tasks)).unwrap();
                assert_eq!(admit().len(), 0, "{level}: {how} beside an open host");
                host.ask(last);
                assert_eq!(store.read(|tx| tx.audit()).unwrap(), [], "{level}: {how}, {last}");
            }
            let before = granted.len();
            granted.extend(admit());
            assert_eq!(granted.len() - before, tasks.len(), "{level}: {how}");
        }
        while !granted.is_empty() {
            let ends: Vec<Finish> = granted.iter().map(|task| Finish::success(task.lease_ref())).collect();
            store.write(|tx| tx.finish(SystemClock.now(), &ends)).unwrap();
            granted = admit();
        }
        let drained = store.read(|tx| tx.pools(&[pool_name("keeps")])).unwrap().remove(0).unwrap();
        assert_eq!((drained.used, store.read(|tx| tx.audit()).unwrap()), (0, vec![]), "{level}");
        let left = format!("SELECT count(*) FROM \"{}\".ready", scratch.0);
        assert_eq!(host.number(&left), 0, "{level}: tasks are passed over");
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    fn shuffled<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
        items
    }
}

/// The tasks and runs that all callers want.
const TASKS: usize = 200;

fn key(n: usize) -> TaskKey {
    TaskKey::new("n", "bulk", "r", n.to_string()).unwrap()
}

fn run_key(n: usize) -> RunKey {
    RunKey::new("n", format!("run {n}")).unwrap()
}

fn new_task(n: usize) -> NewTask {
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).max_attempts(9).build().unwrap();
    let task = NewTask::new(key(n)).pool(pool_name("wide")).pool_slots(1 + n as u32 % 3).retry(retry);
    let task = task.lease_loss(LeaseLoss::Requeue { at_most: 9 }).attempts_as_runs(n.is_multiple_of(2));
    if n.is_multiple_of(5) { task.limit(format!("l{}", n % 3).as_str().try_into().unwrap()) } else { task }
}

/// One call about many tasks, in no order.
fn bulk_call(tx: &mut Tx<'_>, call: usize, some: &[usize], calls: usize) -> Result<()> {
    let now = SystemClock.now();
    let keys: Vec<TaskKey> = some.iter().map(|n| key(*n)).collect();
    let leases = |tx: &mut Tx<'_>| -> Result<Vec<LeaseRef>> {
        let tasks = tx.tasks(&keys)?;
        Ok(tasks.into_iter().flatten().map(|task| task.lease_ref()).collect())
    };
    match call {
        0 => tx.enqueue(now, &some.iter().map(|n| new_task(*n)).collect::<Vec<_>>()).map(drop),
        1 => {
            let leases = leases(tx)?;
            tx.start(now, &leases).map(drop)
        }
        2 => {
            let leases = leases(tx)?;
            tx.renew(now, Duration::from_secs(1), &leases).map(drop)
        }
        3 | 4 => {
            let finish = |lease: LeaseRef| match calls % 3 {
                0 => Finish::failed(lease, "on purpose"),
                1 => Finish::given_back(lease),
                _ => Finish::success(lease),
            };
            let ends: Vec<Finish> = leases(tx)?.into_iter().map(finish).collect();
            tx.finish(now, &ends).map(drop)
        }
        5 => {
            let sensors: Vec<NewSensor> = leases(tx)?.into_iter().map(sensor).collect();
            tx.register(now, &sensors).map(drop)
        }
        6 => {
            let to = [TaskState::Success, TaskState::Scheduled][calls % 2];
            let ends: Vec<(LeaseRef, Ending)> =
                leases(tx)?.into_iter().map(|lease| (lease, Ending::new(EndReason::Landed, to))).collect();
            tx.end_sensors(now, &ends).map(drop)
        }
        7 => {
            let marks: Vec<Mark> =
                keys.iter().map(|key| Mark::new(key.clone(), TaskState::Skipped, "no")).collect();
            tx.mark(now, &marks).map(drop)
        }
        8 => tx.clear(now, &keys).map(drop),
        9 => {
            let runs: Vec<RunRecord> = some.iter().map(|n| RunRecord::open(run_key(*n), now)).collect();
            tx.record_runs(&runs, StopBeforeStart::Reject).map(drop)
        }
        10 => {
            let closes: Vec<RunClose> =
                some.iter().map(|n| RunClose::new(run_key(*n), now, RunStatus::Completed)).collect();
            tx.close_runs(&closes).map(drop)
        }
        11 => tx.reap(now + Duration::from_millis(500), 50).map(drop),
        12 => tx.forget_ended(now, Duration::from_millis(100), 20).map(drop),
        13 => tx.define([pool("wide", 200 + calls as u32 % 50)], IfExists::Replace).map(drop),
        _ => {
            let names: Vec<String> = some.iter().map(|n| (n % 7).to_string()).collect();
            tx.serialize(&names)
        }
    }
}

/// Calls of the store alone: each locks in one order, whatever order its caller names.
#[test]
fn random_bulk_calls() {
    const CALLERS: usize = 5;
    let Some(server) = OwnServer::start() else { return };
    let length = std::env::var("STATIONMASTER_CONTENTION_SECONDS").map_or(4, |text| text.parse().unwrap());
    let scratch = Scratch::new();
    let options = scratch.options().connections(CALLERS as u32 + 3).lock_timeout(Duration::from_secs(60));
    let store = Arc::new(
        PostgresStore::connect(&server.url(), options.statement_timeout(Duration::from_secs(120))).unwrap(),
    );
    store.write(|tx| tx.define([pool("wide", 200)], IfExists::Replace)).unwrap();
    let end = Instant::now() + Duration::from_secs(length);
    let (calls, enqueued) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let conflicts = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (store, calls, conflicts) = (&store, &calls, &conflicts);
            scope.spawn(move || {
                let mut random = Random(caller as u64);
                while Instant::now() < end {
                    let most = 1 + random.below(TASKS);
                    let mut some = random.shuffled((0..TASKS).collect());
                    some.truncate(most);
                    let (call, number) = (random.below(15), calls.fetch_add(1, Ordering::Relaxed));
                    // Not `write`, which would run it again.
                    let done = store.transact(TxMode::Write, &mut |tx| bulk_call(tx, call, &some, number));
                    // That an end found no lease is not a conflict with another call.
                    if let Err(error) = done
                        && !format!("{error:?}").contains("is_again: true })")
                    {
                        conflicts.lock().unwrap().push(format!("call {call}: {error:?}"));
                    }
                }
            });
        }
        // The same new keys in other orders: no two of these calls may wait for each other.
        for caller in 0..2 {
            let (store, enqueued) = (&store, &enqueued);
            scope.spawn(move || {
                let mut random = Random(100 + caller);
                for round in 0.. {
                    let task = |n| {
                        task(&format!("{round} {n}")).not_before(SystemClock.now() + Duration::from_secs(999))
                    };
                    let tasks = random.shuffled((0..25_000).map(task).collect());
                    store
                        .transact(TxMode::Write, &mut |tx| tx.enqueue(SystemClock.now(), &tasks).map(drop))
                        .unwrap();
                    enqueued.fetch_add(1, Ordering::Relaxed);
                    if Instant::now() > end {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut admitter =
                Admitter::new(store.clone(), "h".try_into().unwrap()).lease(Duration::from_millis(800));
            while Instant::now() < end {
                admitter.admit(SystemClock.now(), 100).unwrap();
            }
        });
    });
    let deadlocks = Plain::connect(&server.url())
        .number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    let (calls, enqueued) = (calls.into_inner(), enqueued.into_inner());
    println!("{calls} bulk calls, {enqueued} enqueues of 25,000 tasks: {deadlocks} deadlocks");
    let log = if deadlocks == 0 { String::new() } else { server.log() };
    assert_eq!((deadlocks, conflicts.into_inner().unwrap()), (0, vec![]), "{log}");
    assert!(calls > 50 && enqueued >= 2, "{calls} calls, {enqueued} enqueues");
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}
