//! The store fails at every call, once each: operations are done or not done, counters stay sums, services go on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod stores;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::error::{Error, Result, StoreErrorKind};
use stationmaster::feed::TaskEvent;
use stationmaster::ops::{Registered, StopBeforeStart};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings, SmartSensorConfig};
use stationmaster::service::{Admitter, FeedReader, PokeRequest, Poker, Service, Upkeep};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::task::Feed;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::{
    Fault, FaultStore, KINDS, Snapshot, Struck, Watch, When, sample_faults, sweep_faults,
};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskState, Timestamp};
use stores::{Kind, kinds, kinds_that_number_at_once};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// The methods of the store's traits that write.
const WRITES: [&str; 38] = [
    "insert_tasks_if_absent",
    "insert_tasks_if_uncapped",
    "hold_caps",
    "put_caps",
    "survey",
    "grant_if_open",
    "start_if_queued",
    "renew_if_leased",
    "note_if_leased",
    "cancel_if_leased",
    "move_if",
    "change_if",
    "delete_if",
    "forget_ended",
    "lock_definitions",
    "put_pools",
    "delete_pools_if_unused",
    "put_limits",
    "delete_limits",
    "delete_families",
    "put_paused",
    "put_sensors",
    "end_sensors_if_waiting",
    "forget_feed",
    "put_consumer",
    "delete_consumer",
    "put_worker",
    "delete_worker",
    "forget_workers",
    "put_shards_if_unchanged",
    "put_shard_takes",
    "put_outages",
    "put_poke_counts",
    "put_runs",
    "close_runs_if_open",
    "beat_runs_if_open",
    "delete_runs",
    "forget_stopped_runs",
];

/// The failures that are tried. A sample is that of an unknown commit alone.
fn failures(kind: &Kind) -> &'static [StoreErrorKind] {
    if kind.is_sampled() { &[StoreErrorKind::Indeterminate] } else { &KINDS }
}

/// The calls of a service that fail: every one, or a few of them.
fn calls(kind: &Kind, when: When) -> impl Iterator<Item = u64> {
    let stride = kind.stride(7);
    let first = if when == When::Before { 1 } else { 1 + stride as u64 / 2 };
    (first..).step_by(stride)
}

#[test]
fn every_operation_that_writes_is_done_or_not_done() {
    // What was tried again is looked at before its commit.
    for kind in kinds_that_number_at_once() {
        let make = || kind.shared();
        let sweep = match kind.is_sampled() {
            true => sample_faults(StoreErrorKind::Indeterminate, &make),
            false => sweep_faults(&make),
        };
        println!("{}: {sweep:?}", kind.name);
        let (faults, committed) = if kind.is_sampled() {
            (100, sweep.operations.div_ceil(2))
        } else {
            (1_000, sweep.operations * KINDS.len())
        };
        assert!(sweep.operations > 30 && sweep.faults > faults, "{sweep:?}");
        assert_eq!(sweep.committed, committed);
        for writes in WRITES {
            assert!(sweep.calls.contains(writes), "{writes} is called by no step");
        }
    }
}

/// A store that forgets what was asked of it in one call, and the sweep must not be content with it.
#[derive(Debug)]
struct HalfDone(Arc<dyn Store>);

impl Store for HalfDone {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut answer = Ok(());
        self.0.transact(mode, &mut |tx| {
            answer = body(tx);
            Ok(())
        })?;
        answer
    }
}

#[test]
fn a_store_that_keeps_half_of_a_failed_operation_is_found_out() {
    let swept =
        std::panic::catch_unwind(|| sweep_faults(&|| Arc::new(HalfDone(Arc::new(MemoryStore::new())))));
    assert!(swept.is_err());
}

/// It fails with the call that it goes along with: before that nothing is done, after it all.
#[test]
fn a_commit_that_goes_along_with_the_last_verb_fails_with_it() {
    for kind in kinds() {
        for when in [When::Before, When::After] {
            let mut committed = Vec::new();
            for call in 1.. {
                let inner = kind.shared();
                let store = FaultStore::new(inner.clone());
                store.arm(Fault::new(call, when, StoreErrorKind::Io));
                let answer = store.write(|tx| tx.last(|tx| tx.enqueue(at(0), &[NewTask::new(key("a"))])));
                let Some(hit) = store.disarm() else {
                    assert_eq!(answer.unwrap().len(), 1);
                    break;
                };
                let is_there = inner.read(|tx| tx.tasks(&[key("a")])).unwrap()[0].is_some();
                let told = (is_there, answer.unwrap_err().is_indeterminate());
                assert_eq!(told, (hit.is_committed(), hit.is_committed()), "{}: {hit:?}", kind.name);
                committed.extend(hit.is_committed().then_some(hit.call));
            }
            let expected: &[&str] = match (when, kind.name) {
                (When::Before, _) => &[],
                (When::After, "postgres") => &["insert_tasks_if_uncapped"],
                (When::After, _) => &["commit"],
            };
            assert_eq!(committed, expected, "{}, {when:?}", kind.name);
        }
    }
}

/// Notes what could be seen after each commit.
#[derive(Debug)]
struct Recorder {
    inner: Arc<dyn Store>,
    seen: Mutex<Vec<Snapshot>>,
}

impl Store for Recorder {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.inner.transact(mode, body)?;
        if mode == TxMode::Write {
            self.seen.lock().push(look(&self.inner));
        }
        Ok(())
    }
}

fn look(store: &Arc<dyn Store>) -> Snapshot {
    let watch = Watch { tasks: NAMES.map(key).into(), ..Watch::default() };
    let seen = store.read(|tx| Ok(Snapshot::take(tx, &watch)?)).unwrap();
    assert_eq!(seen.audit(), []);
    seen
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Five tasks of a pool of four slots, of which one waits for its instant; `started` of them are admitted and run.
fn five_tasks(store: &Arc<dyn Store>, started: usize) -> Vec<LeaseRef> {
    let mut tasks = NAMES.map(|name| {
        let task = NewTask::new(key(name)).limit("tenant".try_into().unwrap()).feed(Feed::EndsAndSensors);
        task.lease_loss(LeaseLoss::Requeue { at_most: 3 })
    });
    tasks[4].not_before = Some(at(5));
    store
        .write(|tx| {
            tx.define([PoolSpec::new("default_pool", Slots::Limited(4))?], IfExists::Replace)?;
            tx.enqueue(at(0), &tasks)
        })
        .unwrap();
    if started == 0 {
        return Vec::new();
    }
    let granted = Admitter::new(store.clone(), "w".try_into().unwrap())
        .budget(started)
        .lease(Duration::from_secs(30))
        .tick(at(0))
        .unwrap()
        .granted;
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    store.write(|tx| tx.start(at(0), &leases)).unwrap();
    leases
}

/// Has a service work through `rounds` instants with each of its calls failing once, and checks that it
///
/// * is never seen in a state in which an undisturbed one is never seen,
/// * and comes to the same end.
fn sweep<S>(
    prepare: impl Fn(&Arc<dyn Store>),
    service: impl Fn(Arc<dyn Store>) -> S,
    mut work: impl FnMut(&mut S) -> Result<()>,
    end: impl Fn(&Arc<dyn Store>) -> Vec<(TaskState, u32)>,
) -> usize {
    let mut struck = 0;
    for kind in kinds() {
        let inner = kind.shared();
        prepare(&inner);
        let recorder = Arc::new(Recorder { inner: inner.clone(), seen: Mutex::new(vec![look(&inner)]) });
        work(&mut service(recorder.clone())).unwrap();
        let (seen, last) = (recorder.seen.lock().clone(), end(&inner));
        assert!(seen.len() > 1, "it writes");
        for (fault, when) in
            failures(&kind).iter().flat_map(|fault| [(*fault, When::Before), (*fault, When::After)])
        {
            for call in calls(&kind, when) {
                let inner = kind.shared();
                prepare(&inner);
                let store = Arc::new(FaultStore::new(inner.clone()));
                let mut service = service(store.clone());
                store.arm(Fault::new(call, when, fault));
                let answer = work(&mut service);
                let hit = store.disarm();
                let case = || format!("call {call}, {when:?}, {fault:?}: {hit:?}, {answer:?}");
                check_answer(&answer, hit, fault, &case());
                let now = look(&inner);
                if answer.is_err() {
                    assert!(seen.iter().any(|seen| same(seen, &now)), "{}", case());
                }
                // It goes on, and nothing is lost or done twice.
                work(&mut service).unwrap_or_else(|error| panic!("{}: then {error}", case()));
                assert_eq!(end(&inner), last, "{}", case());
                look(&inner);
                if hit.is_none() {
                    break;
                }
                struck += 1;
            }
        }
    }
    struck
}

/// Only a fault that struck is reported. A conflict may have been overcome by trying again, an unknown commit
/// by asking.
fn check_answer(answer: &Result<()>, hit: Option<Struck>, kind: StoreErrorKind, case: &str) {
    match (answer, hit) {
        (Ok(()), None) => {}
        (Ok(()), Some(hit)) => {
            let overcome = kind == StoreErrorKind::Conflict || kind == StoreErrorKind::Indeterminate;
            assert!(overcome || hit.is_committed(), "{case}");
        }
        (Err(Error::Store(error)), Some(hit)) => {
            let told = if hit.is_committed() { StoreErrorKind::Indeterminate } else { kind };
            assert!(error.kind() == told || error.kind() == kind, "{case}");
        }
        _ => panic!("{case}"),
    }
}

/// Equal in all that outlives a process; what a poker leases has epochs that depend on how often it tried.
fn same(a: &Snapshot, b: &Snapshot) -> bool {
    (a.tasks(), a.pools()) == (b.tasks(), b.pools())
}

/// Where the tasks came to, and how often each was tried.
fn ends(store: &Arc<dyn Store>) -> Vec<(TaskState, u32)> {
    let tasks = store.read(|tx| tx.tasks(&NAMES.map(key))).unwrap();
    tasks.into_iter().flatten().map(|task| (task.state, task.attempt)).collect()
}

#[test]
fn an_admitter() {
    let struck = sweep(
        |store| drop(five_tasks(store, 2)),
        |store| Admitter::new(store, "w".try_into().unwrap()).remember(Duration::from_secs(1)),
        |admitter| {
            admitter.admit(at(3), 1)?;
            admitter.tick(at(6)).map(drop)
        },
        |store| {
            let mut ends = ends(store);
            ends.sort_by_key(|(state, attempt)| (*state, *attempt));
            ends
        },
    );
    assert!(struck > least(70), "{struck}");
}

/// How many faults strike at least: a sample of them where only servers are asked.
fn least(many: usize) -> usize {
    if kinds().iter().all(Kind::is_sampled) { 0 } else { many }
}

#[test]
fn upkeep() {
    let struck = sweep(
        |store| drop(five_tasks(store, 4)),
        |store| Upkeep::new(store).limit(3).grace(Duration::ZERO).retain_ended_for(Duration::from_secs(1)),
        |upkeep| {
            upkeep.tick(at(100))?;
            upkeep.tick(at(101)).map(drop)
        },
        ends,
    );
    assert!(struck > least(50), "{struck}");
}

/// Each part ends on its own as it does undisturbed. The next tick does what the report says failed.
#[test]
fn upkeep_that_does_all_it_can() {
    let silent = |store: &Arc<dyn Store>| {
        five_tasks(store, 4);
        let runs =
            ["r1", "r2"].map(|id| RunRecord::open(RunKey::new("ns", id).unwrap(), at(0)).heartbeat(at(1)));
        store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
    };
    let struck = sweep(
        silent,
        |store| {
            Upkeep::new(store)
                .limit(3)
                .grace(Duration::ZERO)
                .retain_state_for(TaskState::Success, Duration::from_secs(1))
                .close_runs_silent_for(Duration::from_secs(10), RunStatus::Killed)
                .retain_runs_for(Duration::from_secs(1_000))
                .retain_requests_for(Duration::from_secs(1))
                .promotes(true)
                .audit_every(Duration::from_micros(1))
                .repairs(true)
        },
        |upkeep| {
            for now in [100, 101, 102] {
                if let Some(error) = upkeep.tick(at(now))?.errors.pop() {
                    return Err(error);
                }
            }
            Ok(())
        },
        |store| {
            let keys = ["r1", "r2"].map(|id| RunKey::new("ns", id).unwrap());
            let runs = store.read(|tx| tx.runs(&keys)).unwrap();
            assert!(runs.iter().flatten().all(|run| run.stop == Some(at(1))), "{runs:?}");
            ends(store)
        },
    );
    assert!(struck > least(100), "{struck}");
}

fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(1_000)).unwrap();
    let context = PokeContext::from_json(&format!(r#"{{"task": {}}}"#, lease.id.0 % 2)).unwrap();
    NewSensor::new(lease, "file".try_into().unwrap(), context, settings)
}

fn sensing(store: &Arc<dyn Store>) {
    let leases = five_tasks(store, 3);
    let sensors: Vec<NewSensor> = leases.into_iter().map(sensor).collect();
    let answers = store.write(|tx| tx.register(at(1), &sensors)).unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Registered::Waiting(_))));
}

#[test]
fn a_poker() {
    let struck = sweep(
        sensing,
        |store| {
            let poke = |request: &PokeRequest| match request.context.as_str().contains('1') {
                true => PokeOutcome::Landed(Some("here".into())),
                false => PokeOutcome::Failed("never".into()),
            };
            Poker::new(store, "p".try_into().unwrap())
                .shards(std::num::NonZeroU32::new(2).unwrap())
                .lease(Duration::from_secs(600))
                .wait_for_answers(Duration::from_secs(60))
                .poke_timeout(Duration::from_secs(60))
                .kind("file".try_into().unwrap(), poke)
        },
        |poker| {
            for now in 2..7 {
                poker.tick(at(now))?;
            }
            Ok(())
        },
        |store| {
            let of_sensors = stores::told(store).into_iter().filter(|event| event.reason.is_some());
            assert_eq!(of_sensors.count(), 3, "each sensor ended once");
            ends(store)
        },
    );
    assert!(struck > least(100), "{struck}");
}

#[test]
fn a_reader_of_the_feed() {
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let struck = sweep(
        |store| {
            sensing(store);
            let names =
                NAMES.map(|name| stationmaster::ops::Mark::new(key(name), TaskState::Skipped, "by hand"));
            store.write(|tx| tx.mark(at(2), &names)).unwrap();
        },
        |store| {
            let told = counted.clone();
            let handler = move |_: &TaskEvent| {
                told.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            FeedReader::new(store, "c".try_into().unwrap(), handler).limit(2).turn(Duration::ZERO)
        },
        |reader| {
            // Without a turn each tick gives one.
            for now in 3..9 {
                reader.tick(at(now))?;
            }
            Ok(())
        },
        |store| {
            let (read, last) = (store.read(|tx| tx.consumers()).unwrap(), stores::told(store).len());
            assert_eq!((read[0].cursor, read[0].lost), (last as u64, 0));
            ends(store)
        },
    );
    assert!(struck > least(50) && told.load(Ordering::SeqCst) > struck, "{struck}");
}

#[test]
fn a_registration_tells_the_host_whatever_fails() {
    for kind in kinds() {
        for (fault, when) in
            failures(&kind).iter().flat_map(|fault| [(*fault, When::Before), (*fault, When::After)])
        {
            for call in calls(&kind, when) {
                let inner = kind.shared();
                let leases = five_tasks(&inner, 3);
                let sensors: Vec<NewSensor> = leases.into_iter().map(sensor).collect();
                let store = FaultStore::new(inner.clone());
                store.arm(Fault::new(call, when, fault));
                let config = SmartSensorConfig::default();
                let answers = store.write(|tx| tx.register_with(at(1), &config, &sensors));
                let hit = store.disarm();
                look(&inner);
                let sensing = ends(&inner).iter().filter(|(state, _)| *state == TaskState::Sensing).count();
                let committed = hit.is_none_or(|hit| hit.is_committed()) || fault == StoreErrorKind::Conflict;
                assert_eq!(sensing, if committed { 3 } else { 0 }, "call {call}, {when:?}, {fault:?}");
                match (answers, hit) {
                    (Ok(answers), hit) => {
                        assert!(answers.iter().all(|answer| matches!(answer, Registered::Waiting(_))));
                        assert!(hit.is_none() || fault == StoreErrorKind::Conflict);
                    }
                    (Err(error), hit) => assert!(hit.is_some(), "{error}"),
                }
                if hit.is_none() {
                    break;
                }
            }
        }
    }
}
