//! Services whose futures are dropped: no report is lost, and no lease stays without an owner.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use stationmaster::admission::IfExists;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::Result;
use stationmaster::lease::LeaseRef;
use stationmaster::ops::{Admission, Finish};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{Admitter, LoopHandle, Report, Service, WakingStore};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::task::Feed;
use stationmaster::testing::raw;
use stationmaster::tokio::{AsyncAdmitter, AsyncService, AsyncStore, drive};
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use tokio::runtime::{Builder, Handle};

use crate::cut::*;
use crate::fleet::{in_state, sense_targets, until};
use crate::scene::{Gate, at, key, patient, secs, waits};
use crate::stores::{kinds, stores};

/// This many tasks, for a pool with this many slots.
fn tasks(store: &Arc<dyn Store>, tasks: usize, slots: u32) -> Vec<TaskKey> {
    let keys: Vec<TaskKey> = (0..tasks).map(|n| key(&format!("t{n}"))).collect();
    let new: Vec<NewTask> =
        keys.iter().cloned().map(|key| NewTask::new(key).feed(Feed::EndsAndSensors)).collect();
    store
        .write(|tx| {
            tx.define([PoolSpec::new("default_pool", Slots::Limited(slots))?], IfExists::Replace)?;
            tx.enqueue(at(0), &new)
        })
        .unwrap();
    keys
}

fn admitter(store: &Arc<dyn Store>) -> AsyncAdmitter {
    AsyncAdmitter::new(Admitter::new(store.clone(), "h".try_into().unwrap()).lease(secs(1_000_000)))
}

fn leases(granted: &[TaskRecord]) -> Vec<LeaseRef> {
    granted.iter().map(TaskRecord::lease_ref).collect()
}

/// The leases that the store knows of.
fn held(store: &Arc<dyn Store>, keys: &[TaskKey]) -> Vec<LeaseRef> {
    let seen = look(store, keys);
    let leased = seen.tasks.into_iter().flatten().filter(|task| task.state.is_leased());
    let mut held: Vec<LeaseRef> = leased.map(|task| task.lease_ref()).collect();
    held.sort();
    assert_eq!(used(store), i64::try_from(held.len()).unwrap());
    held
}

/// The polls that a call needs at most: it waits once, for its thread.
const POLLS: usize = 2;

#[test]
fn what_a_dropped_admission_was_granted_is_the_answer_to_the_next() {
    for kind in kinds() {
        for polls in 1..=POLLS {
            let store = kind.shared();
            let (store, keys) = (&store, tasks(&store, 6, 4));
            in_order().block_on(async {
                let mut admitter = admitter(store);
                let first = cut(polls, || {}, admitter.admit(at(0), 3)).await;
                assert_eq!(first.is_some(), polls == POLLS);
                all_work_done().await;
                assert_eq!(held(store, &keys).len(), 3, "the tick is whole");
                let mut delivered = leases(&first.map_or(Vec::new(), |first| first.unwrap().granted));
                let second = admitter.admit(at(1), 9).await.unwrap();
                delivered.extend(leases(&second.granted));
                delivered.extend(leases(&admitter.admit(at(2), 9).await.unwrap().granted));
                assert_eq!(delivered.len(), 4, "{polls} polls: each once");
                delivered.sort();
                assert_eq!(delivered, held(store, &keys), "and all of them");
                assert!(admitter.undelivered().await.is_none());
            });
        }
    }
}

#[test]
fn what_is_undelivered_may_be_asked_for_alone() {
    for store in &stores().collect::<Vec<_>>() {
        let keys = tasks(store, 6, 4);
        in_order().block_on(async {
            let (mut admitter, gate) = (admitter(store), Arc::new(Gate::default()));
            let held_up = gate.clone();
            tokio::task::spawn_blocking(move || held_up.pass());
            assert!(cut(1, || {}, admitter.tick(at(0))).await.is_none());
            assert!(cut(1, || {}, admitter.undelivered()).await.is_none(), "this future may be dropped, too");
            gate.open();
            let mut granted = leases(&admitter.undelivered().await.unwrap().unwrap().granted);
            granted.sort();
            assert_eq!(granted, held(store, &keys));
        });
    }
}

#[test]
fn what_was_granted_to_nobody_is_given_back() {
    for kind in kinds() {
        // Dropped before the tick begins, after it, and after its report was read.
        for when in 0..3 {
            let store = kind.shared();
            let (store, keys) = (&store, tasks(&store, 6, 4));
            in_order().block_on(async {
                let mut admitter = admitter(store);
                let gate = Arc::new(Gate::default());
                let held_up = gate.clone();
                tokio::task::spawn_blocking(move || held_up.pass());
                assert!(cut(1, || {}, admitter.tick(at(0))).await.is_none());
                let mut delivered = Vec::new();
                if when > 0 {
                    gate.open();
                    all_work_done().await;
                    assert_eq!(held(store, &keys).len(), 4);
                }
                if when > 1 {
                    delivered = leases(&admitter.tick(at(0)).await.unwrap().granted);
                    delivered.sort();
                    assert!(cut(1, || {}, admitter.tick(at(1))).await.is_none(), "this one finds no slot");
                }
                drop(admitter);
                gate.open();
                all_work_done().await;
                assert_eq!(held(store, &keys), delivered);
                assert_eq!(in_state(store, &keys, TaskState::Scheduled), 6 - delivered.len());
            });
        }
    }
}

#[test]
fn what_was_granted_to_nobody_is_given_back_when_the_runtime_ends() {
    for store in &stores().collect::<Vec<_>>() {
        let keys = tasks(store, 6, 4);
        for outside in [true, false] {
            let runtime = in_order();
            let dropped = runtime.block_on(async {
                let mut admitter = admitter(store);
                assert!(cut(1, || {}, admitter.tick(at(0))).await.is_none());
                all_work_done().await;
                assert_eq!(held(store, &keys).len(), 4);
                if outside { Some(admitter) } else { None }
            });
            drop(runtime);
            drop(dropped);
            assert_eq!(held(store, &keys), [], "{outside}");
        }
    }
}

#[test]
fn a_run_that_is_dropped_at_any_poll_and_run_again_delivers_each_lease_once() {
    for kind in kinds() {
        let mut polls = 1;
        loop {
            let store = kind.shared();
            let handle = LoopHandle::new();
            let keys = tasks(&store, 6, 2);
            let store: Arc<dyn Store> = Arc::new(WakingStore::new(Forward(store.clone()), handle.clone()));
            let (delivered, whole) = in_order().block_on(async {
                let (mut admitter, calls) = (admitter(&store), AsyncStore::new(store.clone()));
                let mut delivered: BTreeMap<LeaseRef, usize> = BTreeMap::new();
                let mut ended = 0;
                let (mut rounds, mut work) = (0, tokio::task::JoinSet::new());
                // Cut again and again, until a run ends on its own.
                let whole = loop {
                    rounds += 1;
                    let each = |admission: Result<Admission>| {
                        for task in admission.unwrap().granted {
                            *delivered.entry(task.lease_ref()).or_default() += 1;
                            ended += 1;
                            let (calls, done) = (calls.clone(), Finish::success(task.lease_ref()));
                            work.spawn(async move {
                                calls
                                    .write(move |tx| tx.finish(at(0), std::slice::from_ref(&done)))
                                    .await
                                    .unwrap()
                            });
                        }
                        if ended == 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    };
                    let run = drive(&mut admitter, &Standing, &handle, secs(3_600), each);
                    if let Some(end) = cut(polls, || {}, run).await {
                        end.unwrap();
                        break rounds == 1;
                    }
                    all_work_done().await;
                };
                work.join_all().await;
                (delivered, whole)
            });
            assert_eq!(delivered.len(), 6, "{polls}");
            assert!(delivered.values().all(|times| *times == 1), "{polls}: {delivered:?}");
            assert_eq!(in_state(&store, &keys, TaskState::Success), 6);
            assert_eq!(held(&store, &keys), []);
            if whole {
                break;
            }
            polls += 1;
            assert!(polls < 100, "some run ends by itself");
        }
        assert!(polls > 5, "it has awaits to be dropped at: {polls}");
    }
}

#[test]
fn a_run_after_a_dropped_one_does_not_sleep_over_what_came_in_between() {
    for store in stores() {
        in_order().block_on(async {
            let handle = LoopHandle::new();
            tasks(&store, 1, 9);
            let mut admitter = admitter(&store);
            let go_on = |_: Result<Admission>| ControlFlow::Continue(());
            let first = drive(&mut admitter, &Standing, &handle, secs(3_600), go_on);
            assert!(cut(1, || {}, first).await.is_none());
            all_work_done().await;
            store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key("later"))])).unwrap();
            handle.wake();
            let mut granted = Vec::new();
            let second = drive(&mut admitter, &Standing, &handle, secs(3_600), |admission| {
                granted.extend(admission.unwrap().granted.into_iter().map(|task| task.key));
                if granted.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            tokio::time::timeout(secs(60), second).await.expect("it sleeps").unwrap();
            assert_eq!(granted, [key("t0"), key("later")]);
        });
    }
}

/// A clock that stands.
#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        at(0)
    }
}

/// A store behind a pointer.
#[derive(Debug)]
struct Forward(Arc<dyn Store>);

impl Store for Forward {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}

#[test]
fn a_poker_whose_ticks_are_dropped_ends_each_sensor_once_and_reports_it_once() {
    const SENSORS: usize = 12;
    for kind in kinds() {
        for polls in 1..=POLLS {
            let store = kind.shared();
            let store = &store;
            let keys = sense_targets(store, "kind", SENSORS, waits(10, 1_000));
            in_order().block_on(async {
                let poke = |_| async {
                    tokio::task::yield_now().await;
                    PokeOutcome::Landed(None)
                };
                let kind = "kind".try_into().unwrap();
                let poker = patient(store).kind_async(kind, &Handle::current(), poke);
                let mut poker = AsyncService::new(poker);
                let first = cut(polls, || {}, poker.tick(at(0))).await;
                let mut landed = first.map_or(0, |first| first.unwrap().landed);
                landed += poker.tick(at(1)).await.unwrap().landed;
                assert_eq!(landed, SENSORS, "{polls}");
                assert!(cut(1, || {}, poker.with(|poker| poker.leave())).await.is_none());
                all_work_done().await;
                assert_eq!(
                    store.read(|tx| Ok(raw(tx).live_workers(at(1))?)).unwrap(),
                    [],
                    "it left all the same"
                );
            });
            let events = crate::stores::told(store);
            assert_eq!((events.len(), in_state(store, &keys, TaskState::Success)), (SENSORS, SENSORS));
            assert_eq!(held(store, &keys), []);
        }
    }
}

#[derive(Debug, PartialEq)]
struct Ticked(u32);

impl Report for Ticked {
    fn next_due(&self) -> Option<Timestamp> {
        None
    }
}

/// Counts its ticks, and panics at the second.
struct Moody {
    ticks: u32,
    woken_by: Option<LoopHandle>,
}

impl Service for Moody {
    type Report = Ticked;

    fn tick(&mut self, _: Timestamp) -> Result<Ticked> {
        self.ticks += 1;
        assert!(self.ticks != 2, "on purpose");
        Ok(Ticked(self.ticks))
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        self.woken_by = Some(handle.clone());
    }
}

#[test]
fn a_panic_goes_on_in_the_caller_and_the_service_goes_on_ticking() {
    in_order().block_on(async {
        let mut service = AsyncService::new(Moody { ticks: 0, woken_by: None });
        assert_eq!(service.tick(at(0)).await.unwrap(), Ticked(1));
        assert!(Catch(Box::pin(service.tick(at(0)))).await, "the second tick panics");
        assert_eq!(service.tick(at(0)).await.unwrap(), Ticked(3));
    });
}

/// True if the future panics.
struct Catch<F>(Pin<Box<F>>);

impl<F: Future> Future for Catch<F> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context).is_ready())) {
            Ok(true) => Poll::Ready(false),
            Ok(false) => Poll::Pending,
            Err(_) => Poll::Ready(true),
        }
    }
}

#[test]
fn a_run_sleeps_until_it_is_woken_and_ends_when_it_is_stopped() {
    in_order().block_on(async {
        let (handle, ticks) = (LoopHandle::new(), Arc::new(AtomicUsize::new(0)));
        let mut service = AsyncService::new(Moody { ticks: 10, woken_by: None });
        let (counted, driver) = (ticks.clone(), handle.clone());
        let each = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            ControlFlow::Continue(())
        };
        let task = tokio::spawn(async move {
            drive(&mut service, &SystemClock, &driver, secs(3_600), each).await.unwrap();
            service
        });
        for wakes in 1..=3 {
            until(|| ticks.load(Ordering::SeqCst) >= wakes).await;
            handle.wake();
        }
        until(|| ticks.load(Ordering::SeqCst) >= 4).await;
        handle.stop();
        let mut service = task.await.unwrap();
        let told = service.with(|service| service.woken_by.take()).await.unwrap();
        assert!(told.is_some_and(|told| told.is_stopped()), "the service knows what wakes it");
    });
}

/// Ticks when its gate is open.
struct Slow(Arc<Gate>);

impl Service for Slow {
    type Report = Ticked;

    fn tick(&mut self, _: Timestamp) -> Result<Ticked> {
        self.0.pass();
        Ok(Ticked(1))
    }
}

#[test]
fn what_is_to_be_done_after_a_tick_is_not_begun_before_its_end() {
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(2).build().unwrap();
    runtime.block_on(async {
        let gate = Arc::new(Gate::default());
        let mut service = AsyncService::new(Slow(gate.clone()));
        assert!(cut_once(service.tick(at(0))).await, "the tick goes on without its future");
        assert!(cut_once(service.with(|_| panic!("its future was dropped before the tick had ended"))).await);
        let mut after = Box::pin(service.with(|_| "after the tick"));
        tokio::select! {
            biased;
            _ = &mut after => panic!("the tick has not ended"),
            () = std::future::ready(()) => {}
        }
        // It holds no thread while it waits: the second one is free.
        let free = tokio::time::timeout(secs(60), tokio::task::spawn_blocking(|| {})).await;
        gate.open();
        assert!(free.is_ok());
        assert_eq!(after.await.unwrap(), "after the tick");
        assert_eq!(service.undelivered().await.unwrap().unwrap(), Ticked(1), "its report is still there");
    });
}

/// Polls once; true if the future was not ready, and is dropped.
async fn cut_once<T>(future: impl Future<Output = T>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}
