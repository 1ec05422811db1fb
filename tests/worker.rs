//! A worker runs what it is granted, ends it once, and stops without leaving anything: handlers on threads.
#![allow(clippy::unwrap_used)]

mod stores;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, Invalid, StoreErrorKind};
use stationmaster::ops::{Fenced, Finish, Outcome};
use stationmaster::service::{
    Cancelled, Job, LoopHandle, Reaper, Service, WakingStore, Worker, WorkerReport,
};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState};
use stores::stores;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

fn task(name: &str) -> NewTask {
    NewTask::new(key(name))
}

fn enqueue(store: &Arc<dyn Store>, tasks: &[NewTask]) {
    store.write(|tx| tx.enqueue(SystemClock.now(), tasks)).unwrap();
}

fn record(store: &Arc<dyn Store>, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

fn state(store: &Arc<dyn Store>, name: &str) -> TaskState {
    record(store, name).state
}

fn worker(store: &Arc<dyn Store>) -> Worker {
    Worker::new(store.clone(), "worker".try_into().unwrap()).places(4).longest_wait(HOUR)
}

/// A store of each kind, and a handle that its commits wake.
fn scenes() -> impl Iterator<Item = (Arc<dyn Store>, LoopHandle)> {
    stores().map(|store| {
        let handle = LoopHandle::new();
        (Arc::new(WakingStore::new(Shared(store), handle.clone())) as Arc<dyn Store>, handle)
    })
}

/// To be wrapped.
#[derive(Debug)]
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}

/// Waits until this is so; a test that waits in vain fails.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("in vain: {what}");
}

/// A worker on a thread of its own, which is stopped and waited for at the latest when this is dropped.
struct Run {
    handle: LoopHandle,
    thread: Option<std::thread::JoinHandle<Result<WorkerReport>>>,
}

fn run(worker: Worker, handle: &LoopHandle) -> Run {
    let own = handle.clone();
    Run { handle: handle.clone(), thread: Some(std::thread::spawn(move || worker.run(&own))) }
}

impl Run {
    fn stop(mut self) -> WorkerReport {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A gate that handlers wait at, and whose waiting they count.
#[derive(Clone)]
struct Gate(LoopHandle);

impl Gate {
    fn new() -> Self {
        Self(LoopHandle::new())
    }

    fn open(&self) {
        self.0.stop();
    }

    fn pass(&self) {
        while !self.0.is_stopped() {
            self.0.wait(MINUTE);
        }
    }
}

#[test]
fn what_a_handler_returns_is_how_its_task_ends() {
    for (store, handle) in scenes() {
        let retry = RetryPolicy::fixed(HOUR).max_attempts(2).build().unwrap();
        let names = ["unit", "value", "error", "retry", "never", "panic", "skip", "recorded"];
        let tasks: Vec<NewTask> = names.iter().map(|name| task(name).payload(*name)).collect();
        let tasks: Vec<NewTask> = tasks
            .into_iter()
            .map(|task| match task.payload.as_str() {
                "retry" | "never" => task.retry(retry.clone()),
                "recorded" => task.record_attempts(true),
                _ => task,
            })
            .collect();
        enqueue(&store, &tasks);
        let running = run(
            worker(&store).handler(|job: &Job| {
                assert_eq!(job.task().attempt, 1);
                assert!(job.holds(SystemClock.now()) && !job.is_cancelled() && job.deadline().is_none());
                match job.task().payload.as_str() {
                    "value" => Ok(Outcome::Success { value: Some("7".into()) }),
                    "error" | "retry" => Err("no route to host"),
                    "never" => Ok(Finish::failed(job.lease(), "bad input").outcome),
                    "panic" => panic!("on {}", "purpose"),
                    "skip" => Ok(Outcome::Skipped { message: "not needed".into() }),
                    _ => Ok(().into()),
                }
            }),
            &handle,
        );
        let is_over = |name: &&str| {
            !matches!(state(&store, name), TaskState::Scheduled | TaskState::Queued | TaskState::Running)
        };
        until("all have ended", || names.iter().all(|name| is_over(&name)));
        assert_eq!(running.stop().stored, 8);
        let ended: BTreeMap<&str, (TaskState, Option<String>)> = names
            .into_iter()
            .map(|name| (name, record(&store, name)))
            .map(|(name, task)| (name, (task.state, task.message.or(task.value))))
            .collect();
        let text = |text: &str| Some(text.to_string());
        assert_eq!(ended["unit"], (TaskState::Success, None));
        assert_eq!(ended["recorded"], (TaskState::Success, None));
        assert_eq!(ended["value"], (TaskState::Success, text("7")));
        assert_eq!(ended["retry"], (TaskState::UpForRetry, text("no route to host")));
        assert_eq!(ended["skip"], (TaskState::Skipped, text("not needed")));
        assert_eq!((ended["error"].0, ended["panic"].0), (TaskState::Failed, TaskState::Failed));
        assert!(ended["error"].1.as_ref().unwrap().starts_with("no route to host"));
        assert!(ended["panic"].1.as_ref().unwrap().starts_with("the handler panicked: on purpose"));
        let runs = record(&store, "recorded").attempt_run(1).unwrap();
        let runs = store.read(|tx| tx.runs(&[runs.clone()])).unwrap();
        assert!(runs[0].as_ref().is_some_and(|run| run.stop.is_some()), "the attempt was recorded");
        assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    }
}

#[test]
fn the_most_specific_handler_is_called_and_without_one_the_attempt_fails() {
    for (store, handle) in scenes() {
        let queue = |name: &str| name.try_into().unwrap();
        enqueue(&store, &[task("named").queue(queue("gpu")), task("of-queue").queue(queue("gpu"))]);
        enqueue(&store, &[task("other").queue(queue("cpu")), task("not-served")]);
        let answer = |text: &'static str| move |_: &Job| Outcome::Success { value: Some(text.into()) };
        let served = worker(&store).queue(queue("gpu"), 1).queue(queue("cpu"), 1);
        let served = served.queue_handler(queue("gpu"), answer("queue"));
        let named = served.task_handler("w".try_into().unwrap(), "named".try_into().unwrap(), answer("task"));
        let running = run(named, &handle);
        until("all have ended", || {
            ["named", "of-queue", "other"].iter().all(|name| state(&store, name).is_end())
        });
        running.stop();
        let value = |name| record(&store, name).value;
        assert_eq!((value("named").as_deref(), value("of-queue").as_deref()), (Some("task"), Some("queue")));
        assert_eq!(state(&store, "other"), TaskState::Failed);
        assert!(
            record(&store, "other").message.unwrap().starts_with("no handler for task other of workflow w")
        );
        assert_eq!(state(&store, "not-served"), TaskState::Scheduled);
    }
}

#[test]
fn places_are_never_exceeded_and_one_queue_takes_none_of_another() {
    for (store, handle) in scenes() {
        let queues = [("gpu", 2), ("cpu", 3)];
        let name = |queue: &str, n| format!("{queue}-{n}");
        let tasks: Vec<NewTask> = (0..20)
            .flat_map(|n| queues.map(|(queue, _)| task(&name(queue, n)).queue(queue.try_into().unwrap())))
            .collect();
        let (now, most) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(Mutex::new(BTreeMap::new())));
        let (running, seen, gate) = (now.clone(), most.clone(), Gate::new());
        let passes = gate.clone();
        let mut served = worker(&store).handler(move |job: &Job| {
            let queue = job.task().lane.queue.as_str().to_string();
            let at_once = {
                let mut now = running.lock();
                let at_once = now.entry(queue.clone()).or_insert(0);
                *at_once += 1;
                *at_once
            };
            let mut most = seen.lock();
            let most_of = most.entry(queue.clone()).or_insert(0);
            *most_of = at_once.max(*most_of);
            drop(most);
            passes.pass();
            *running.lock().get_mut(&queue).unwrap() -= 1;
        });
        for (queue, places) in queues {
            served = served.queue(queue.try_into().unwrap(), places);
        }
        enqueue(&store, &tasks);
        let running = run(served, &handle);
        until("all places are taken", || now.lock().values().sum::<usize>() == 5);
        gate.open();
        let done = |task: &NewTask| state(&store, task.key.task.as_str()) == TaskState::Success;
        until("all have ended", || tasks.iter().all(done));
        assert_eq!(running.stop().stored, 40);
        assert_eq!(*most.lock(), [("cpu".to_string(), 3), ("gpu".to_string(), 2)].into());
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_by_new_work_and_by_tasks_that_become_due() {
    for (store, handle) in scenes() {
        let (sender, ran) = mpsc::channel();
        let retry = RetryPolicy::fixed(Duration::from_millis(1)).max_attempts(2).build().unwrap();
        let sender = Mutex::new(sender);
        let running = run(
            worker(&store).places(1).handler(move |job: &Job| {
                sender.lock().send((job.task().key.task.as_str().to_string(), job.task().attempt)).unwrap();
                if job.task().attempt == 1 { Err("again") } else { Ok(()) }
            }),
            &handle,
        );
        let next = || ran.recv_timeout(MINUTE).unwrap();
        enqueue(&store, &[task("a").retry(retry.clone())]);
        assert_eq!([next(), next()], [("a".to_string(), 1), ("a".to_string(), 2)]);
        until("it is over", || state(&store, "a") == TaskState::Success);
        enqueue(&store, &[task("b").not_before(SystemClock.now() + Duration::from_millis(20)).retry(retry)]);
        assert_eq!([next(), next()], [("b".to_string(), 1), ("b".to_string(), 2)]);
        until("it is over", || state(&store, "b") == TaskState::Success);
        assert_eq!(running.stop().stored, 4);
    }
}

#[test]
fn without_a_wake_it_asks_after_its_longest_wait() {
    for store in stores() {
        let handle = LoopHandle::new();
        let running =
            run(worker(&store).longest_wait(Duration::from_millis(5)).handler(|_: &Job| ()), &handle);
        enqueue(&store, &[task("from-elsewhere")]);
        until("it was found", || state(&store, "from-elsewhere") == TaskState::Success);
        running.stop();
    }
}

#[test]
fn a_handler_ends_its_task_with_what_follows_in_one_transaction() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("first")]);
        let running = run(
            worker(&store).handler(|job: &Job| match job.task().key.task.as_str() {
                "first" => {
                    let refused = job.end((), |tx| {
                        tx.enqueue(SystemClock.now(), &[task("not-to-be")])?;
                        Err(Error::abort("thought better of it"))
                    });
                    assert!(matches!(refused, Err(Error::Aborted(_))));
                    job.end(Outcome::Success { value: Some("1".into()) }, |tx| {
                        let ended = tx.tasks(&[key("first")])?.remove(0).unwrap();
                        assert_eq!(ended.state, TaskState::Success, "it has ended already");
                        tx.enqueue(SystemClock.now(), &[task("second")]).map(drop)
                    })
                    .unwrap();
                    assert!(!job.holds(SystemClock.now()));
                    Err("what it returns now changes nothing")
                }
                _ => Ok(()),
            }),
            &handle,
        );
        until("both have ended", || {
            store.read(|tx| tx.tasks(&[key("second")])).unwrap()[0]
                .as_ref()
                .is_some_and(|task| task.state.is_end())
        });
        let report = running.stop();
        assert_eq!((report.stored, report.refused), (1, 0), "of the second task alone");
        assert_eq!(
            (state(&store, "first"), state(&store, "second")),
            (TaskState::Success, TaskState::Success)
        );
        assert!(store.read(|tx| tx.tasks(&[key("not-to-be")])).unwrap()[0].is_none());
    }
}

#[test]
fn a_task_that_ended_elsewhere_is_not_ended_again() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a"), task("b")]);
        let own = store.clone();
        let running = run(
            worker(&store).handler(move |job: &Job| {
                // As by a transaction of the host's own.
                let end = [Finish::success_with(job.lease(), "by the host")];
                own.write(|tx| tx.finish(SystemClock.now(), &end)?.fenced()).unwrap();
                job.ended_elsewhere();
                Err::<(), _>("what it returns now changes nothing")
            }),
            &handle,
        );
        until("they have ended", || ["a", "b"].iter().all(|name| state(&store, name).is_end()));
        let report = running.stop();
        assert_eq!((report.stored, report.refused), (0, 0), "the worker has stored nothing");
        assert_eq!(record(&store, "a").value.as_deref(), Some("by the host"));
    }
}

#[test]
fn what_runs_too_long_is_cancelled_and_then_given_up() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("heeds").payload("1"), task("ignores").payload("1"), task("free")]);
        let (gate, whys) = (Gate::new(), Arc::new(Mutex::new(BTreeMap::new())));
        let (passes, told) = (gate.clone(), whys.clone());
        let limited = |task: &TaskRecord| (!task.payload.is_empty()).then_some(Duration::from_millis(1));
        let running = run(
            worker(&store).patience(Duration::from_millis(50)).max_run(limited).handler(move |job: &Job| {
                let name = job.task().key.task.as_str();
                assert_eq!(job.deadline().is_some(), name != "free");
                match name {
                    "heeds" => {
                        while !job.wait(MINUTE) {}
                        told.lock().insert("heeds", job.cancelled());
                        return Err("cancelled");
                    }
                    "ignores" => passes.pass(),
                    _ => {}
                }
                Ok(())
            }),
            &handle,
        );
        until("all have ended", || {
            ["heeds", "ignores", "free"].iter().all(|name| state(&store, name).is_end())
        });
        assert_eq!(whys.lock().get("heeds"), Some(&Some(Cancelled::RanTooLong)));
        assert!(record(&store, "heeds").message.unwrap().starts_with("cancelled"));
        assert_eq!(state(&store, "ignores"), TaskState::Failed, "although its handler is still at work");
        assert!(record(&store, "ignores").message.unwrap().contains("after its longest run was over"));
        assert_eq!(state(&store, "free"), TaskState::Success);
        gate.open();
        let report = running.stop();
        assert_eq!((report.stored, report.refused, report.working), (3, 0, vec![]), "each once");
    }
}

#[test]
fn a_handler_whose_lease_was_lost_is_told_and_its_end_is_refused() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a")]);
        let (sender, told) = mpsc::channel();
        let sender = Mutex::new(sender);
        let running = run(
            // Renewed after a third of it, which is when it learns of the loss.
            worker(&store).places(1).lease(Duration::from_secs(1)).handler(move |job: &Job| {
                sender.lock().send(None).unwrap();
                if job.task().attempt == 1 {
                    while !job.wait(MINUTE) {}
                    sender.lock().send(job.cancelled()).unwrap();
                }
                Outcome::Success { value: Some(job.task().attempt.to_string()) }
            }),
            &handle,
        );
        assert_eq!(told.recv_timeout(MINUTE).unwrap(), None);
        // By the clock of another holder's reaper the lease has expired.
        let later = SystemClock.now() + HOUR;
        let reaped = Reaper::new(store.clone()).grace(Duration::ZERO).tick(later).unwrap().reaped;
        assert!(reaped.len() <= 1, "or it has expired by itself");
        assert_eq!(told.recv_timeout(MINUTE).unwrap(), Some(Cancelled::LeaseLost));
        until("another attempt has ended it", || state(&store, "a").is_end());
        let report = running.stop();
        assert_eq!((report.stored, report.refused), (1, 1));
        assert_eq!(record(&store, "a").value.as_deref(), Some("2"), "not what the first attempt said");
    }
}

#[test]
fn a_clean_stop_stores_what_ends_and_gives_back_what_did_not() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("ends"), task("gives-back"), task("waits")]);
        let (gate, begun) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let (passes, counts) = (gate.clone(), begun.clone());
        let running = run(
            worker(&store).places(2).handler(move |job: &Job| {
                counts.fetch_add(1, Ordering::SeqCst);
                while !job.wait(MINUTE) {}
                assert_eq!(job.cancelled(), Some(Cancelled::Stopping));
                passes.pass();
                match job.task().key.task.as_str() {
                    "gives-back" => Outcome::GivenBack,
                    _ => ().into(),
                }
            }),
            &handle,
        );
        until("both work", || begun.load(Ordering::SeqCst) == 2);
        handle.stop();
        gate.open();
        let report = running.stop();
        assert_eq!((report.stored, report.working.len(), report.unstored.len()), (2, 0, 0));
        assert_eq!(begun.load(Ordering::SeqCst), 2, "nothing begins after the stop");
        let states = ["ends", "gives-back", "waits"].map(|name| state(&store, name));
        assert_eq!(states, [TaskState::Success, TaskState::Scheduled, TaskState::Scheduled]);
        assert!(store.read(|tx| tx.all_pools()).unwrap().iter().all(|pool| pool.used == 0));
    }
}

/// The stop comes while the store grants the task.
#[test]
fn what_was_granted_and_did_not_begin_is_given_back() {
    for store in stores() {
        let (faults, handle) = (Arc::new(FaultStore::new(store.clone())), LoopHandle::new());
        enqueue(&store, &[task("a")]);
        let stop = handle.clone();
        let begun = Arc::new(AtomicUsize::new(0));
        faults.interfere("grant_if_open", 1, move |_| {
            stop.stop();
            Ok(())
        });
        let counts = begun.clone();
        let shared: Arc<dyn Store> = faults;
        let report = worker(&shared).handler(move |_: &Job| {
            counts.fetch_add(1, Ordering::SeqCst);
        });
        let report = report.run(&handle).unwrap();
        assert_eq!((report.stored, begun.load(Ordering::SeqCst)), (1, 0));
        let task = record(&store, "a");
        assert_eq!((task.state, task.attempt, task.forgiven), (TaskState::Scheduled, 1, 1));
    }
}

#[test]
fn a_handler_that_ignores_the_stop_is_left_behind_with_its_lease() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("hangs"), task("ends")]);
        let (gate, begun) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let (passes, counts) = (gate.clone(), begun.clone());
        let running = run(
            worker(&store).patience(Duration::from_millis(20)).handler(move |job: &Job| {
                counts.fetch_add(1, Ordering::SeqCst);
                match job.task().key.task.as_str() {
                    "hangs" => passes.pass(),
                    _ => while !job.wait(MINUTE) {},
                }
            }),
            &handle,
        );
        until("both work", || begun.load(Ordering::SeqCst) == 2);
        let report = running.stop();
        assert_eq!((report.stored, &report.working[..]), (1, &[record(&store, "hangs").lease_ref()][..]));
        assert_eq!(state(&store, "ends"), TaskState::Success);
        assert_eq!(state(&store, "hangs"), TaskState::Running, "it is not given to another while it works");
        gate.open();
    }
}

#[test]
fn a_store_that_fails_for_a_while_loses_no_end() {
    for store in stores() {
        let (faults, handle) = (Arc::new(FaultStore::new(store.clone())), LoopHandle::new());
        enqueue(&store, &[task("a"), task("b")]);
        let (fails, errors) = (faults.clone(), Arc::new(AtomicUsize::new(0)));
        let counts = errors.clone();
        let shared: Arc<dyn Store> = faults.clone();
        let running = run(
            worker(&shared)
                .on_error(move |error| {
                    assert!(matches!(error, Error::Store(_)));
                    counts.fetch_add(1, Ordering::SeqCst);
                })
                .handler(move |_: &Job| fails.refuse(TxMode::Write, 5)),
            &handle,
        );
        until("both have ended", || ["a", "b"].iter().all(|name| state(&store, name) == TaskState::Success));
        let report = running.stop();
        assert_eq!((report.stored, report.unstored.len()), (2, 0));
        assert!(errors.load(Ordering::SeqCst) >= 5, "the host was told");
    }
}

/// At each call in turn, before and after its effect.
#[test]
fn whichever_call_of_the_store_fails_a_task_runs_once_and_ends_once() {
    for when in [When::Before, When::After] {
        for at in 1..=200 {
            let faults = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
            let (store, handle): (Arc<dyn Store>, _) = (faults.clone(), LoopHandle::new());
            enqueue(&store, &[task("a"), task("recorded").record_attempts(true)]);
            faults.arm(Fault::new(at, when, StoreErrorKind::Io));
            let (begun, counts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counted = begun.clone();
            let running = run(
                worker(&store).handler(move |job: &Job| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if job.task().key.task.as_str() == "recorded" {
                        let counts = counts.clone();
                        job.end((), move |_| {
                            counts.fetch_add(1, Ordering::SeqCst);
                            Ok(())
                        })?;
                    }
                    Ok::<(), Error>(())
                }),
                &handle,
            );
            let inner = faults.inner().clone();
            until("both have ended", || ["a", "recorded"].iter().all(|name| state(&inner, name).is_end()));
            let report = running.stop();
            let states = ["a", "recorded"].map(|name| state(&inner, name));
            assert_eq!(states, [TaskState::Success; 2], "call {at} {when:?}");
            assert_eq!((begun.load(Ordering::SeqCst), report.refused), (2, 0), "call {at} {when:?}");
            assert!(inner.read(|tx| tx.audit()).unwrap().is_empty());
            if faults.disarm().is_none() {
                assert!(at > 10, "{at} calls were hit");
                break;
            }
        }
    }
}

#[test]
fn ends_that_gather_are_stored_together() {
    for (store, handle) in scenes() {
        let counting = Arc::new(CountingFinishes { inner: store.clone(), writes: AtomicUsize::new(0) });
        let names = ["a", "b", "c", "d"];
        enqueue(&store, &names.map(task));
        let begun = Arc::new(AtomicUsize::new(0));
        let (counts, seen) = (begun.clone(), counting.clone());
        let shared: Arc<dyn Store> = counting.clone();
        let running = run(
            worker(&shared).gather_ends(HOUR).handler(move |_: &Job| {
                counts.fetch_add(1, Ordering::SeqCst);
            }),
            &handle,
        );
        until("all have run", || begun.load(Ordering::SeqCst) == 4);
        let before = seen.writes.load(Ordering::SeqCst);
        assert!(names.iter().all(|name| state(&store, name) == TaskState::Running), "they wait for others");
        assert_eq!(running.stop().stored, 4);
        assert!(names.iter().all(|name| state(&store, name) == TaskState::Success));
        assert!(counting.writes.load(Ordering::SeqCst) - before <= 2, "not one by one");
    }
}

/// Counts the transactions that write.
#[derive(Debug)]
struct CountingFinishes {
    inner: Arc<dyn Store>,
    writes: AtomicUsize,
}

impl Store for CountingFinishes {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.writes.fetch_add(usize::from(mode == TxMode::Write), Ordering::SeqCst);
        self.inner.transact(mode, body)
    }
}

#[test]
fn leases_are_renewed_while_handlers_work() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a")]);
        let (gate, lease) = (Gate::new(), Duration::from_secs(2));
        let passes = gate.clone();
        let running = run(worker(&store).lease(lease).handler(move |_: &Job| passes.pass()), &handle);
        let expiry = || record(&store, "a").lease.map(|lease| lease.expires_at);
        until("it works", || state(&store, "a") == TaskState::Running);
        let first = expiry();
        until("it is renewed", || expiry() > first);
        gate.open();
        until("it has ended", || state(&store, "a") == TaskState::Success);
        running.stop();
    }
}

#[test]
fn a_worker_that_cannot_work_says_why() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ends = |worker: Worker| worker.run(&LoopHandle::new()).unwrap_err();
    let handled = || worker(&store).handler(|_: &Job| ());
    assert!(matches!(ends(worker(&store)), Error::Invalid(Invalid::Zero { .. })));
    assert!(matches!(ends(handled().places(0)), Error::Invalid(Invalid::Zero { .. })));
    assert!(matches!(ends(handled().lease(Duration::ZERO)), Error::Invalid(Invalid::Duration { .. })));
    let handle = LoopHandle::new();
    let window = stationmaster::admission::AirflowWindow::new(16);
    let refused = handled().queue("q".try_into().unwrap(), 1);
    let refused = refused.policy(stationmaster::admission::Policy::AirflowWindow(window));
    assert!(matches!(refused.run(&handle), Err(Error::Invalid(Invalid::WindowWithQueues))));
    assert!(handle.is_stopped(), "others that it stops learn of it");
}
