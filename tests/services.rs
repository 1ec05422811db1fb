//! What services and operations do at their edges: names used twice, unknown commits, budgets, clocks, loops.

mod stores;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::bounds::MAX_TEXT_BYTES;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, ManualClock, SystemClock};
use stationmaster::error::{Invalid, Result, StoreError, StoreErrorKind};
use stationmaster::ops::{Admission, AdmitRequest, Cleared, Finish, Finished, Mark};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::ActiveQuery;
use stationmaster::sensor::{EndReason, NewSensor, OnLanded, Settings};
use stationmaster::service::{Admitter, LoopHandle, Report, Service, Upkeep, WakingStore, drive};
use stationmaster::store::contract::{Ending, SurveyQuery};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::task::attempt_run_id;
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, TaskKey, TaskState, Timestamp};
use stores::{kinds, stores};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

fn put(store: &dyn Store, tasks: &[NewTask]) {
    store.write(|tx| tx.enqueue(at(0), tasks)).unwrap();
}

fn order(holder: &str, request: &str) -> AdmitRequest {
    AdmitRequest::new(holder.try_into().unwrap(), request.try_into().unwrap(), 9, secs(60))
}

fn admitted(store: &dyn Store, now: i64, request: &str) -> Admission {
    store.write(|tx| tx.admit(at(now), &order("h", request))).unwrap()
}

/// Admits and starts one task.
fn running(store: &dyn Store, now: i64) -> LeaseRef {
    let lease = admitted(store, now, &format!("tick-{now}")).granted[0].lease_ref();
    store.write(|tx| tx.start(at(now), &[lease])).unwrap();
    lease
}

#[test]
fn a_request_of_another_holder_is_refused() {
    for store in stores() {
        put(&*store, &[NewTask::new(key("t"))]);
        assert_eq!(admitted(&*store, 0, "tick").granted.len(), 1);
        let refused = store.write(|tx| tx.admit(at(0), &order("other", "tick"))).unwrap_err();
        assert!(matches!(&refused, Error::Invalid(Invalid::RequestOfAnother { .. })), "{refused}");
    }
}

/// Commits or not, and then says that it does not know.
#[derive(Debug)]
struct Unsure {
    inner: Arc<dyn Store>,
    commits: VecDeque<bool>,
    next: Mutex<VecDeque<bool>>,
}

impl Unsure {
    fn new(inner: Arc<dyn Store>, commits: &[bool]) -> Self {
        let commits: VecDeque<bool> = commits.iter().copied().collect();
        Self { inner, next: Mutex::new(VecDeque::new()), commits }
    }

    fn begin(&self) {
        *self.next.lock() = self.commits.clone();
    }
}

impl Store for Unsure {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let unsure = if mode == TxMode::Write { self.next.lock().pop_front() } else { None };
        let unknown = || Error::Store(StoreError::new(StoreErrorKind::Indeterminate, "the line is dead"));
        match unsure {
            None => self.inner.transact(mode, body),
            Some(true) => self.inner.transact(mode, body).and(Err(unknown())),
            // What its last verb does may be committed along, so it is not run.
            Some(false) => self.inner.transact(mode, &mut |_| Err(unknown())),
        }
    }
}

#[test]
fn a_commit_of_unknown_end_is_asked_after_and_never_repeated_blindly() {
    for (committed, granted) in [(true, 1), (false, 0)] {
        for inner in stores() {
            let store = Arc::new(Unsure::new(inner, &[committed]));
            put(&*store, &[NewTask::new(key("t"))]);
            store.begin();
            let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
            let admission = admitter.admit(at(0), 9).unwrap();
            assert_eq!(admission.granted.len(), granted);
            assert!(committed || admission.next_due == Some(at(0)), "the next tick may come at once");
            let again = admitter.admit(at(1), 9).unwrap();
            assert_eq!(admission.granted.len() + again.granted.len(), 1);
            let store: &dyn Store = &*store;
            assert_eq!(store.read(|tx| tx.all_pools()).unwrap()[0].used, 1);
        }
    }
}

#[test]
fn old_ticks_are_forgotten() {
    for store in stores() {
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).remember(secs(60));
        let names = ["first", "second"].map(|task| NewTask::new(key(task)));
        store
            .write(|tx| {
                tx.enqueue(at(0), &[NewTask::new(key("old"))])?;
                tx.admit(at(0), &order("h", "old"))
            })
            .unwrap();
        let query = SurveyQuery::new().request("old".try_into().unwrap());
        let is_known = || store.read(|tx| Ok(raw(tx).survey(&query)?.granted.is_some())).unwrap();
        put(&*store, &names[..1]);
        admitter.tick(at(60)).unwrap();
        assert!(is_known());
        put(&*store, &names[1..]);
        admitter.tick(at(61)).unwrap();
        assert!(!is_known());
    }
}

#[test]
fn a_request_that_was_answered_makes_room_for_the_next() {
    for store in stores() {
        let is_known = |name: &str| {
            let query = SurveyQuery::new().request(name.try_into().unwrap());
            store.read(|tx| Ok(raw(tx).survey(&query)?.granted.is_some())).unwrap()
        };
        let admit_after = |request: &str, answered: &str| {
            let order = order("h", request).answered(answered.try_into().unwrap());
            store.write(|tx| tx.admit(at(0), &order)).unwrap().granted.len()
        };
        put(&*store, &[NewTask::new(key("a"))]);
        assert_eq!(admitted(&*store, 0, "first").granted.len(), 1);
        assert_eq!(admit_after("second", "first"), 0);
        assert!(is_known("first"), "a tick that grants nothing notes nothing");
        put(&*store, &[NewTask::new(key("b"))]);
        assert_eq!(admit_after("second", "first"), 1);
        assert_eq!(["first", "second"].map(is_known), [false, true]);
        assert_eq!(admit_after("second", "first"), 1, "repeated: the same lease");
        assert_eq!(admit_after("second", "second"), 1, "whatever it names");
    }
}

#[test]
fn requests_that_nobody_names_as_answered_are_bounded_in_number() {
    for store in stores() {
        let ticks = 1_030_i64;
        let tasks: Vec<NewTask> = (0..ticks).map(|n| NewTask::new(key(&n.to_string()))).collect();
        put(&*store, &tasks);
        store
            .write(|tx| tx.define([PoolSpec::new("default_pool", Slots::Unlimited)?], IfExists::Replace))
            .unwrap();
        for tick in 0..ticks {
            let mut order = order("h", &tick.to_string());
            order.budget = 1;
            assert_eq!(
                store.write(|tx| tx.admit(Timestamp::from_micros(tick), &order)).unwrap().granted.len(),
                1
            );
        }
        let is_known = |tick: &i64| {
            let query = SurveyQuery::new().request(tick.to_string().as_str().try_into().unwrap());
            store.read(|tx| Ok(raw(tx).survey(&query)?.granted.is_some())).unwrap()
        };
        assert_eq!(
            (0..ticks).filter(is_known).collect::<Vec<_>>(),
            (ticks - 1_024..ticks).collect::<Vec<_>>()
        );
    }
}

#[test]
fn two_admitters_of_one_name_never_get_the_same_lease() {
    for store in stores() {
        put(&*store, &["a", "b"].map(|name| NewTask::new(key(name))));
        // As in two containers: the same name, the same instant, the same number of the process, the same number of ticks.
        let admit = |_| {
            let mut admitter = Admitter::new(store.clone(), "w".try_into().unwrap()).budget(1);
            admitter.tick(at(0)).unwrap().granted.iter().map(|task| task.id.0).collect::<Vec<_>>()
        };
        assert_eq!([0, 1].map(admit), [[1], [2]]);
    }
}

#[test]
fn a_budget_of_zero_does_not_make_the_loop_spin() {
    for store in stores() {
        put(&*store, &[NewTask::new(key("a")), NewTask::new(key("b")).not_before(at(7))]);
        let mut admitter = Admitter::new(store, "h".try_into().unwrap()).budget(0);
        assert_eq!(admitter.tick(at(0)).unwrap().next_due, Some(at(7)));
    }
}

/// Notes what transactions it is asked for.
#[derive(Debug)]
struct Noting {
    inner: Arc<dyn Store>,
    modes: Mutex<Vec<TxMode>>,
}

impl Store for Noting {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.modes.lock().push(mode);
        self.inner.transact(mode, body)
    }
}

#[test]
fn an_admitter_that_finds_nothing_to_do_only_reads() {
    use TxMode::{Read, Write};
    for inner in stores() {
        let store = Arc::new(Noting { inner: inner.clone(), modes: Mutex::default() });
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).lease(secs(60));
        let mut tick = |now| {
            let granted = admitter.tick(at(now)).unwrap().granted;
            (granted.first().map(|task| task.lease_ref()), std::mem::take(&mut *store.modes.lock()))
        };
        let idle = |modes: &[TxMode]| (None, modes.to_vec());
        let nothing = [idle(&[Write]), idle(&[Write]), idle(&[Write]), idle(&[Read]), idle(&[Read])];
        assert_eq!([0, 1, 2, 3, 4].map(&mut tick), nothing, "after three ticks that found no task");

        let slot = PoolSpec::new("p", Slots::Limited(1)).unwrap();
        inner.write(|tx| tx.define([slot.clone()], IfExists::Replace)).unwrap();
        put(&*inner, &["a", "b"].map(|name| NewTask::new(key(name)).pool("p".try_into().unwrap())));
        let (first, modes) = tick(4);
        assert_eq!(modes, [Read, Write], "it sees the task and grants it");
        assert_eq!([5, 6, 7].map(&mut tick), [idle(&[Write]), idle(&[Read]), idle(&[Read])], "nothing fits");

        inner.write(|tx| tx.finish(at(8), &[Finish::success(first.unwrap())])).unwrap();
        let (second, modes) = tick(8);
        assert!(second.is_some());
        assert_eq!(modes, [Read, Write]);
        let [write, read] = [idle(&[Write]), idle(&[Read])];
        assert_eq!([9, 10, 11, 12].map(&mut tick), [write.clone(), write.clone(), write, read]);
        let told = [200, 201, 202].map(&mut tick);
        assert_eq!(
            told,
            [idle(&[Read, Write]), idle(&[Read]), idle(&[Read])],
            "it tells what it serves, once"
        );
    }
}

#[test]
fn what_a_limit_left_over_is_due_at_once() {
    for store in stores() {
        let tasks = ["a", "b", "c"].map(|task| NewTask::new(key(task)));
        put(&*store, &tasks);
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).budget(2).lease(secs(1));
        assert_eq!(admitter.tick(at(0)).unwrap().next_due, Some(at(0)));
        // Nothing is left, and after a lease it tells again which queues it serves.
        assert_eq!(admitter.tick(at(0)).unwrap().next_due, Some(at(1)));
        let mut upkeep = Upkeep::new(store).limit(2).grace(Duration::ZERO);
        assert_eq!(upkeep.tick(at(1)).unwrap().next_due, Some(at(1)));
        assert_eq!(upkeep.tick(at(1)).unwrap().reaped.len(), 1);
    }
}

#[test]
fn an_urgent_task_does_not_hide_behind_many_that_came_due() {
    for store in stores() {
        let due = |name: &str| NewTask::new(key(name)).not_before(at(1));
        put(&*store, &(0..10_001).map(|n| due(&n.to_string())).collect::<Vec<_>>());
        put(&*store, &[due("urgent").priority(9)]);
        let order = AdmitRequest::new("h".try_into().unwrap(), "tick".try_into().unwrap(), 1, secs(60));
        let admission = store.write(|tx| tx.admit(at(10), &order)).unwrap();
        assert_eq!(
            admission.granted[0].key,
            key("urgent"),
            "in the first tick, which makes 10,000 of them ready"
        );
        assert_eq!((admission.promoted, admission.next_due), (10_000, Some(at(10))));
    }
}

fn sensing(store: &dyn Store, now: i64, lease: LeaseRef, settings: Settings) {
    let sensor =
        NewSensor::new(lease, "k".try_into().unwrap(), PokeContext::from_json("{}").unwrap(), settings);
    store.write(|tx| tx.register(at(now), std::slice::from_ref(&sensor))).unwrap();
}

#[test]
fn resuming_after_a_wait_is_no_failed_attempt() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(5)).max_attempts(2).build().unwrap();
        put(&*store, &[NewTask::new(key("t")).retry(retry)]);
        let settings = Settings::new(secs(1), secs(99)).unwrap().on_landed(OnLanded::Resume);
        for now in 0..4 {
            let lease = running(&*store, now);
            sensing(&*store, now, lease, settings);
            let ending = Ending::new(EndReason::Landed, TaskState::Scheduled);
            store.write(|tx| tx.end_sensors(at(now), &[(lease, ending.clone())])).unwrap();
        }
        let lease = running(&*store, 4);
        let failed = store.write(|tx| tx.finish(at(4), &[Finish::failed(lease, "no")])).unwrap();
        assert_eq!(failed, [Finished::RetryAt(at(9))]);
    }
}

#[test]
fn a_sensor_ends_to_an_end_or_to_scheduled_only() {
    for store in stores() {
        put(&*store, &[NewTask::new(key("t"))]);
        let lease = running(&*store, 0);
        sensing(&*store, 0, lease, Settings::new(secs(1), secs(99)).unwrap());
        let before = store.read(|tx| tx.sensors(&[key("t")])).unwrap();
        for to in [TaskState::Queued, TaskState::Running, TaskState::Sensing, TaskState::UpForRetry] {
            // In a transaction that is committed all the same, as a host's may be.
            let refused = store
                .write(|tx| {
                    let refused = tx.end_sensors(at(1), &[(lease, Ending::new(EndReason::Landed, to))]);
                    Ok(refused)
                })
                .unwrap();
            assert!(matches!(refused, Err(Error::Invalid(Invalid::Ending { .. }))), "{refused:?}");
            assert_eq!(store.read(|tx| tx.sensors(&[key("t")])).unwrap(), before);
        }
    }
}

#[test]
fn texts_above_the_cap_are_refused_or_cut() {
    for store in stores() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        put(&*store, &[NewTask::new(key("t"))]);
        let lease = running(&*store, 0);
        let too_many = |refused: Result<()>| {
            assert!(matches!(refused, Err(Error::Invalid(Invalid::TooManyBytes { .. }))))
        };
        for finish_ in [
            Finish::failed(lease, &*long),
            Finish::success_with(lease, &*long),
            Finish::skipped(lease, &*long),
        ] {
            too_many(store.write(|tx| tx.finish(at(0), std::slice::from_ref(&finish_))).map(drop));
        }
        too_many(
            store.write(|tx| tx.mark(at(0), &[Mark::new(key("t"), TaskState::Failed, &*long)])).map(drop),
        );
        let ending = Ending::new(EndReason::Landed, TaskState::Success).value(Some(long.clone()));
        too_many(store.write(|tx| tx.end_sensors(at(0), &[(lease, ending.clone())])).map(drop));
        // The policy's verdict is added to what is just short enough.
        store.write(|tx| tx.finish(at(0), &[Finish::failed(lease, &long[1..])])).unwrap();
        let task = store.read(|tx| tx.tasks(&[key("t")])).unwrap().remove(0).unwrap();
        assert_eq!((task.state, task.message.unwrap().len()), (TaskState::Failed, MAX_TEXT_BYTES));
    }
}

#[test]
fn attempts_of_different_tasks_are_different_runs() {
    for store in stores() {
        let keys = [
            key("load").mapped(3),
            key("load[3]"),
            TaskKey::new("ns", "w/r", "x", "t").unwrap(),
            TaskKey::new("ns", "w", "r/x", "t").unwrap(),
        ];
        put(&*store, &keys.clone().map(|key| NewTask::new(key).attempts_as_runs(true)));
        let granted = admitted(&*store, 0, "tick").granted;
        let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
        store.write(|tx| tx.start(at(0), &leases)).unwrap();
        let query = ActiveQuery::new(at(0), at(9));
        let runs = store.read(|tx| tx.active_runs(&query)).unwrap();
        assert_eq!(runs.len(), 4);
        assert!(runs.iter().any(|run| run.key.id.as_str() == attempt_run_id(&keys[0], granted[0].id, 1)));
    }
}

#[test]
fn an_ended_task_runs_again_when_it_is_cleared() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(5)).max_attempts(2).build().unwrap();
        put(&*store, &[NewTask::new(key("t")).retry(retry), NewTask::new(key("other")).not_before(at(99))]);
        for now in [0, 5] {
            let lease = running(&*store, now);
            store.write(|tx| tx.finish(at(now), &[Finish::failed(lease, "no")])).unwrap();
        }
        let keys = [key("t"), key("t"), key("other"), key("ghost")];
        let cleared = store.write(|tx| tx.clear(at(6), &keys)).unwrap();
        let scheduled = Cleared::NotEnded(TaskState::Scheduled);
        assert_eq!(cleared, [Cleared::Ready, Cleared::Ready, scheduled, Cleared::Unknown]);
        let lease = running(&*store, 7);
        let task = store.read(|tx| tx.tasks(&[key("t")])).unwrap().remove(0).unwrap();
        assert_eq!((task.attempt, task.forgiven), (3, 2));
        let finished = store.write(|tx| tx.finish(at(7), &[Finish::failed(lease, "no")])).unwrap();
        assert_eq!(finished, [Finished::RetryAt(at(12))], "the policy began anew");
        assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    }
}

#[test]
fn retries_know_first_start_and_logical_date_and_keep_the_message() {
    for store in stores() {
        let budget = RetryPolicy::fixed(secs(5)).budget(secs(12)).build().unwrap();
        put(&*store, &[NewTask::new(key("t")).retry(budget)]);
        for (now, becomes) in [
            (0, Finished::RetryAt(at(5))),
            (5, Finished::RetryAt(at(10))),
            (10, Finished::Ended(TaskState::Failed)),
        ] {
            let lease = running(&*store, now);
            let finished =
                store.write(|tx| tx.finish(at(now), &[Finish::failed(lease, "no route")])).unwrap();
            assert_eq!(finished, [becomes]);
            let task = store.read(|tx| tx.tasks(&[key("t")])).unwrap().remove(0).unwrap();
            assert!(task.message.unwrap().starts_with("no route"));
        }
        // Airflow's jitter is a hash of the logical date.
        let airflow =
            RetryPolicy::airflow(stationmaster::backoff::AirflowVersion::V2_10, secs(1_000)).build().unwrap();
        let dates = [at(0), at(86_400)];
        let retries = dates.map(|date| {
            let name = key(&date.to_string());
            put(&*store, &[NewTask::new(name).retry(airflow.clone()).logical_date(date)]);
            let lease = running(&*store, 20 + date.as_micros() / 1_000_000);
            store.write(|tx| tx.finish(at(50), &[Finish::failed(lease, "no")])).unwrap()
        });
        assert_ne!(retries[0], retries[1]);
    }
}

#[test]
fn a_manual_clock_loses_no_advance() {
    let clock = ManualClock::new(at(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| clock.advance(Duration::from_micros(1))));
        }
    });
    assert_eq!(clock.now(), Timestamp::from_micros(40_000));
}

/// Wakes its own loop in its first tick, and then has nothing to do.
struct WakesItself {
    handle: LoopHandle,
    ticks: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Quiet;

impl Report for Quiet {
    fn next_due(&self) -> Option<Timestamp> {
        None
    }
}

impl Service for WakesItself {
    type Report = Quiet;

    fn tick(&mut self, _: Timestamp) -> Result<Quiet> {
        match self.ticks.fetch_add(1, Ordering::SeqCst) {
            0 => self.handle.wake(),
            1 => self.handle.stop(),
            _ => {}
        }
        Ok(Quiet)
    }
}

#[test]
fn a_wake_during_a_tick_brings_another_tick() {
    let (handle, ticks) = (LoopHandle::new(), Arc::new(AtomicUsize::new(0)));
    let mut service = WakesItself { handle: handle.clone(), ticks: ticks.clone() };
    // Without it the loop would sleep for an hour.
    drive(&mut service, &SystemClock, &handle, secs(3_600), |_| ControlFlow::Continue(()));
    assert_eq!(ticks.load(Ordering::SeqCst), 2);
}

#[test]
fn what_frees_slots_or_brings_tasks_wakes_waiters_and_a_tick_does_not() {
    for kind in kinds() {
        let handle = LoopHandle::new();
        let store = Arc::new(WakingStore::new(kind.make(), handle.clone()));
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
        let woken = |work: &mut dyn FnMut()| {
            let seen = handle.seen();
            work();
            handle.seen() != seen
        };
        assert!(woken(&mut || put(&*store, &[NewTask::new(key("t"))])));
        let mut lease = None;
        assert!(!woken(&mut || lease = Some(admitter.tick(at(0)).unwrap().granted[0].lease_ref())));
        let lease = lease.unwrap();
        assert!(!woken(&mut || drop(store.write(|tx| tx.start(at(0), &[lease])).unwrap())));
        let end = |tx: &mut Tx<'_>| tx.finish(at(0), &[Finish::success(lease)]);
        assert!(!woken(&mut || drop(store.write(|tx| end(tx).and(Err::<(), _>(Error::abort("no")))))));
        assert!(woken(&mut || drop(store.write(|tx| end(tx)).unwrap())));
        assert!(!woken(&mut || drop(store.read(|tx| tx.all_pools()).unwrap())));
        assert_eq!(store.inner().info().backend, kind.name);
    }
}

/// A policy may have kept slots free for what is gone, or waits elsewhere now.
#[test]
fn what_waited_and_does_not_wait_there_any_more_wakes_waiters() {
    for kind in kinds() {
        let handle = LoopHandle::new();
        let store = Arc::new(WakingStore::new(kind.make(), handle.clone()));
        let tasks = ["deleted", "later", "ended"].map(|name| NewTask::new(key(name)));
        put(&*store, &tasks);
        let woken = |work: &dyn Fn(&mut Tx<'_>) -> stationmaster::Result<()>| {
            let seen = handle.seen();
            store.write(|tx| work(tx)).unwrap();
            handle.seen() != seen
        };
        assert!(woken(&|tx| tx.delete(&[key("deleted")]).map(drop)), "{}", kind.name);
        assert!(!woken(&|tx| tx.delete(&[key("deleted")]).map(drop)), "{}: it was gone", kind.name);
        let later = |task: &mut NewTask| task.not_before = Some(at(9));
        assert!(woken(&|tx| tx.change(at(0), &[key("later")], later).map(drop)), "{}", kind.name);
        assert!(woken(&|tx| tx.cancel(at(0), secs(0), &[key("ended")], "m").map(drop)), "{}", kind.name);
        assert!(!woken(&|tx| tx.delete(&[key("ended")]).map(drop)), "{}: it had ended", kind.name);
    }
}

/// Upkeep that sleeps for an hour ends a lease at the deadline of a cancel that it is woken for, and nothing else wakes it.
#[test]
fn upkeep_is_woken_by_the_handle_that_hears_of_cancels() {
    for kind in kinds() {
        let [works, rests] = [(); 2].map(|()| LoopHandle::new());
        works.wakes_for_cancels(&rests);
        let store: Arc<dyn Store> = Arc::new(WakingStore::new(kind.make(), works.clone()));
        let mut upkeep = Upkeep::new(store.clone()).grace(secs(0));
        let stop = rests.clone();
        let thread = std::thread::spawn(move || {
            drive(&mut upkeep, &SystemClock, &stop, secs(3_600), |_| ControlFlow::Continue(()));
        });
        let seen = rests.seen();
        put(&*store, &[NewTask::new(key("t"))]);
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).lease(secs(3_600));
        admitter.tick(SystemClock.now()).unwrap();
        works.wake();
        assert_eq!(rests.seen(), seen, "{}: only cancels wake it", kind.name);
        let grace = std::time::Duration::from_millis(300);
        store.write(|tx| tx.cancel(SystemClock.now(), grace, &[key("t")], "m")).unwrap();
        let began = std::time::Instant::now();
        let state = || store.read(|tx| tx.tasks(&[key("t")])).unwrap()[0].as_ref().unwrap().state;
        while state() != stationmaster::TaskState::Cancelled {
            assert!(began.elapsed() < secs(60), "{}: nobody ends it", kind.name);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        rests.stop();
        thread.join().unwrap();
        drop(rests);
        works.wake_for_cancel();
    }
}

#[test]
fn a_loop_goes_on_soon_after_an_error() {
    struct Fails(usize);
    impl Service for Fails {
        type Report = Quiet;
        fn tick(&mut self, _: Timestamp) -> Result<Quiet> {
            self.0 += 1;
            Err(Error::Store(StoreError::new(StoreErrorKind::Busy, "on purpose")))
        }
    }
    let mut service = Fails(0);
    let mut left = 4;
    drive(&mut service, &SystemClock, &LoopHandle::new(), secs(3_600), |report| {
        assert!(report.is_err());
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(service.0, 4);
}
