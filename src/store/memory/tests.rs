//! Transactions keep everything that they wrote, or nothing: rows, indexes, counters and numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::state::State;
use super::*;
use crate::admission::limits::LimitSpec;
use crate::canonical::PokeContext;
use crate::error::{Error, StoreErrorKind};
use crate::id::{Holder, LimitKey, PoolName, RequestId, SensorKind};
use crate::lease::{LeaseRef, TaskId};
use crate::pool::{PoolSpec, Slots};
use crate::run::{RunClose, RunKey, RunRecord, RunStatus};
use crate::sensor::{NewSensor, Settings};
use crate::store::contract::{
    Forget, GrantBatch, Inserted, Move, PokerRow, ShardLease, ShardWrite, StoreTx, SurveyQuery,
};
use crate::task::{Feed, KeptAttempts};
use crate::testing::RawStoreExt;
use crate::time::Timestamp;
use crate::{NewTask, TaskKey, TaskState};

/// A write whose arguments are chosen by small numbers.
#[derive(Debug, Clone, Copy)]
struct Step {
    method: u8,
    a: u8,
    b: u8,
}

const METHODS: u8 = 24;

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..METHODS, 0_u8..8, 0_u8..8).prop_map(|(method, a, b)| Step { method, a, b });
    proptest::collection::vec(step, 0..most)
}

fn name(prefix: &str, number: u8) -> String {
    format!("{prefix}{number}")
}

fn lease(tx: &mut dyn StoreTx, id: u8) -> Result<LeaseRef> {
    let id = TaskId(id.into());
    let epoch = tx.tasks_by_id(&[id])?[0].as_ref().map_or(0, |task| task.epoch);
    Ok(LeaseRef::new(id, epoch))
}

fn new_task(a: u8, b: u8) -> NewTask {
    let key = TaskKey::new("n", "w", "r", name("t", a)).unwrap();
    let mut task = NewTask::new(key).pool_slots(1 + u32::from(b % 3)).priority(b.into());
    task.feed = [Feed::Off, Feed::Ends, Feed::EndsAndSensors][usize::from(a % 3)];
    task.keep_attempts = [KeptAttempts::Failures, KeptAttempts::All, KeptAttempts::None][usize::from(b % 3)];
    if b.is_multiple_of(2) {
        task = task.limit(LimitKey::new(name("k", b)).unwrap());
    }
    task.not_before = (b > 5).then(|| Timestamp::from_micros(b.into()));
    task
}

fn moved(tx: &mut dyn StoreTx, a: u8, to: TaskState) -> Result<Move> {
    let task = lease(tx, a)?;
    let found = tx.tasks_by_id(&[task.id])?.remove(0);
    let mut order = Move::new(task, found.map_or(TaskState::Scheduled, |task| task.state), to);
    order.due = (to == TaskState::UpForRetry).then(|| Timestamp::from_micros(a.into()));
    order.ended_at = to.is_end().then(|| Timestamp::from_micros(a.into()));
    order.message = Some(name("m", a));
    Ok(order)
}

fn run(tx: &mut dyn StoreTx, Step { method, a, b }: Step) -> Result<()> {
    let (at, later) = (Timestamp::from_micros(a.into()), Timestamp::from_micros(b.into()));
    let pool = PoolName::new(name("p", a))?;
    let limit = LimitKey::new(name("k", a))?;
    let holder = Holder::new(name("h", a % 3))?;
    match method {
        0 | 1 => {
            tx.insert_tasks_if_absent(&[new_task(a, b).check(at)?, new_task(b, a).check(at)?])?;
        }
        2 => {
            tx.survey(&SurveyQuery::new().promote(at, 9))?;
        }
        3 | 4 => {
            let tasks = [TaskId(a.into()), TaskId(b.into())];
            let [request, replaced] = [b, a].map(|number| RequestId::new(name("q", number)).unwrap());
            let batch = GrantBatch::new(&tasks, &holder, at, later).request(&request);
            tx.grant_if_open(&if b % 2 == 0 { batch } else { batch.replaces(&replaced) })?;
        }
        5 => {
            let leases = [lease(tx, a)?, lease(tx, b)?];
            tx.start_if_queued(&leases, at)?;
        }
        6 => {
            let leases = [lease(tx, a)?, lease(tx, b)?];
            tx.renew_if_leased(&leases, later)?;
        }
        7 | 8 => {
            let order = moved(tx, a, TaskState::ALL[usize::from(b)])?;
            // Two of the states are refused. What was written before stays until the transaction ends.
            let refused = order.to.is_leased();
            assert_eq!(tx.move_if(&[order]).is_err(), refused);
        }
        9 => {
            let tasks = [TaskId(a.into())];
            tx.grant_if_open(&GrantBatch::new(&tasks, &holder, at, later))?;
        }
        10 => {
            tx.grant_if_open(&GrantBatch::new(&[], &holder, at, later).forget(Forget::before(at, b.into())))?;
            tx.forget_workers(at, b.into())?;
        }
        11 => {
            tx.forget_ended(TaskState::ALL[usize::from(b) % TaskState::ALL.len()], at, at, b.into())?;
        }
        12 => tx.put_pools(&[PoolSpec::new(pool.as_str(), Slots::Limited(b.into()))?])?,
        13 => {
            tx.delete_pools_if_unused(&[pool, PoolName::default_pool()])?;
        }
        14 | 15 => {
            let tasks: Vec<TaskId> = (a..=b.max(a)).map(|id| TaskId(id.into())).collect();
            tx.grant_if_open(&GrantBatch::new(&tasks, &holder, at, later))?;
        }
        16 => tx.put_limits(&[LimitSpec::new(limit, b.into())?])?,
        17 => {
            tx.delete_limits(&[limit])?;
        }
        18 => {
            let mut keeping = moved(tx, a, TaskState::Sensing)?;
            keeping.keeps_slots = b % 2 == 0;
            tx.move_if(&[keeping])?;
        }
        19 => {
            let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9))?;
            let context = PokeContext::from_json(&format!(r#"{{"n":{b}}}"#)).unwrap();
            let lease = lease(tx, a)?;
            let sensor = NewSensor::new(lease, SensorKind::new("s")?, context, settings);
            let is_there = tx.tasks_by_id(&[lease.id])?[0].is_some();
            assert_eq!(tx.put_sensors(&[sensor.insert(at)]).is_ok(), is_there);
        }
        20 => {
            let leases = [lease(tx, a)?];
            tx.end_sensors_if_waiting(&leases)?;
            let consumer = serde_json::json!({
                "name": "c", "cursor": b, "seen_at": Timestamp::UNIX_EPOCH, "lost": 0, "dropped": false,
                "reader": 1, "until": Timestamp::UNIX_EPOCH,
            });
            let consumer: crate::feed::Consumer = serde_json::from_value(consumer).unwrap();
            tx.put_consumer(&consumer)?;
            tx.forget_feed(a.into(), Timestamp::MIN, usize::from(b))?;
            if a == b {
                tx.delete_consumer(&consumer.name)?;
            }
        }
        21 => {
            let (codes, shards) = (crate::shard::DEFAULT_CODES, std::num::NonZeroU32::MIN);
            tx.put_worker(&PokerRow::new(holder.clone(), codes, shards, later))?;
            let lease = ShardLease::new(b.into(), Some(holder), i64::from(a) + 1, later);
            let kind = (a % 2 == 0).then(|| SensorKind::new("k")).transpose()?;
            tx.put_shards_if_unchanged(&[ShardWrite::new(i64::from(a), ShardLease { kind, ..lease })])?;
            if a == b {
                tx.delete_worker(&Holder::new(name("h", b % 3))?)?;
            }
        }
        22 => {
            let open = RunRecord::open(RunKey::new(name("n", a % 2), name("r", b))?, at);
            let closed = open.clone().closed(later, RunStatus::Completed);
            tx.put_runs(&[if a > 3 { open } else { closed }])?;
        }
        _ => {
            let key = RunKey::new(name("n", a % 2), name("r", b))?;
            tx.close_runs_if_open(&[RunClose::new(key.clone(), later, RunStatus::Killed)])?;
            if a > 4 {
                tx.delete_runs(&[key])?;
            }
        }
    }
    Ok(())
}

fn snapshot(store: &MemoryStore) -> State {
    store.state.lock().borrow().clone()
}

fn run_all(store: &MemoryStore, steps: &[Step], last: impl Fn() -> Result<()>) -> Result<()> {
    store.write_raw(|tx| {
        steps.iter().try_for_each(|step| run(tx, *step))?;
        last()
    })
}

/// Unwinds without a message on standard error.
fn unwind() -> Result<()> {
    std::panic::resume_unwind(Box::new("thrown by the body"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_does_not_commit_leaves_nothing_behind(kept in steps(60), lost in steps(30), after in steps(10)) {
        let store = MemoryStore::new();
        run_all(&store, &kept, || Ok(())).unwrap();
        let before = snapshot(&store);
        prop_assert_eq!(&before, &before.rebuilt());

        prop_assert!(run_all(&store, &lost, || Err(Error::abort("changed its mind"))).is_err());
        prop_assert_eq!(&snapshot(&store), &before);

        let thrown = catch_unwind(AssertUnwindSafe(|| run_all(&store, &lost, unwind)));
        prop_assert!(thrown.is_err());
        prop_assert_eq!(&snapshot(&store), &before);

        run_all(&store, &after, || Ok(())).unwrap();
        let end = snapshot(&store);
        prop_assert_eq!(&end, &end.rebuilt());
    }
}

#[test]
fn the_steps_of_the_property_change_every_table() {
    let store = MemoryStore::new();
    let all = (0..METHODS).flat_map(|method| (0..8).map(move |n| Step { method, a: n, b: (n * 3 + 1) % 8 }));
    let (mut noted, mut pooled, mut requested) = (false, false, false);
    for step in all {
        run_all(&store, &[step], || Ok(())).unwrap();
        noted |= !snapshot(&store).feed.is_empty() && !snapshot(&store).consumers.is_empty();
        pooled |= snapshot(&store).pools != State::default().pools;
        requested |= snapshot(&store).requests != State::default().requests;
    }
    let (end, new) = (snapshot(&store), State::default());
    assert!(noted && pooled && requested && end.tasks.len() > 3 && end.sensors.len() > 0);
    assert!(end.lanes != new.lanes && end.limits != new.limits);
    assert!(end.workers != new.workers && end.shards != new.shards);
    assert!(end.runs != new.runs);
}

fn refused<T, E: Into<Error>>(
    store: &MemoryStore,
    body: impl Fn(&mut dyn StoreTx) -> std::result::Result<T, E>,
) {
    match store.read_raw(|tx| body(tx).map_err(Into::into)) {
        Err(Error::Store(error)) => assert_eq!(error.kind(), StoreErrorKind::ReadOnly),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it wrote"),
    }
}

#[test]
fn a_transaction_that_only_reads_refuses_every_write() {
    let store = MemoryStore::new();
    let before = snapshot(&store);
    for method in (0..METHODS).filter(|method| ![7, 8, 19, 20].contains(method)) {
        refused(&store, |tx| run(tx, Step { method, a: 1, b: 1 }));
    }
    refused(&store, |tx| tx.move_if(&[]));
    refused(&store, |tx| tx.put_sensors(&[]));
    refused(&store, |tx| tx.end_sensors_if_waiting(&[]));
    refused(&store, |tx| tx.forget_feed(0, Timestamp::UNIX_EPOCH, 0));
    refused(&store, |tx| tx.delete_consumer(&Holder::new("h").unwrap()));
    refused(&store, |tx| tx.put_shards_if_unchanged(&[]));
    refused(&store, |tx| tx.delete_worker(&Holder::new("h").unwrap()));
    refused(&store, |tx| tx.delete_runs(&[]));
    assert_eq!(snapshot(&store), before);
}

#[test]
fn it_is_shared_as_a_trait_object_and_speaks_of_itself_briefly() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    store
        .write_raw(|raw| Ok(raw.insert_tasks_if_absent(&[new_task(1, 1).check(Timestamp::UNIX_EPOCH)?])?))
        .unwrap();
    assert_eq!(store.info(), StoreInfo::new("memory", 0, Durability::None));
    assert_eq!(format!("{store:?}"), "MemoryStore { tasks: 1, sensors: 0, .. }");
    let inside = store.read_raw(|_| Ok(format!("{store:?}"))).unwrap();
    assert_eq!(inside, "MemoryStore { .. }", "no wait for the lock");
}

#[test]
fn writers_of_many_threads_lose_nothing() {
    let store = MemoryStore::new();
    let (holder, at) = (Holder::new("h").unwrap(), Timestamp::UNIX_EPOCH);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, holder) = (&store, &holder);
            scope.spawn(move || {
                for round in 0..100 {
                    let key = TaskKey::new("n", "w", format!("r{thread}"), format!("t{round}")).unwrap();
                    let task = NewTask::new(key).check(at).unwrap();
                    let granted = store.write_raw(|raw| {
                        let inserted = raw.insert_tasks_if_absent(std::slice::from_ref(&task))?;
                        let Inserted::New(id) = inserted[0] else { panic!("{inserted:?}") };
                        Ok(raw.grant_if_open(&GrantBatch::new(&[id], holder, at, at))?.tasks.len())
                    });
                    assert_eq!(granted.unwrap(), 1);
                }
            });
        }
    });
    let pools = store.read_raw(|raw| Ok(raw.all_pools()?)).unwrap();
    assert_eq!(pools[0].used, 400);
}

#[test]
fn a_transaction_inside_another_is_refused_at_once() {
    let store = MemoryStore::new();
    for outer in [TxMode::Read, TxMode::Write] {
        for inner in [TxMode::Read, TxMode::Write] {
            let before = snapshot(&store);
            let mut refused = None;
            let answer = store.transact(outer, &mut |tx| {
                refused = store.transact(inner, &mut |_| Ok(())).err();
                tx.raw().next_expiry()?;
                Ok(())
            });
            assert!(answer.is_ok(), "the outer one goes on");
            match refused {
                Some(Error::Store(error)) => assert_eq!(error.kind(), StoreErrorKind::Backend),
                other => panic!("{inner:?} inside {outer:?}: {other:?}"),
            }
            assert_eq!(snapshot(&store), before);
        }
    }
    std::thread::scope(|scope| {
        let other = store
            .write_raw(|_| Ok(scope.spawn(|| store.read_raw(|raw| Ok(raw.all_pools()?.len())))))
            .unwrap();
        assert_eq!(other.join().unwrap().unwrap(), 1, "another thread waits its turn");
    });
}
