//! Which tasks a worker takes, how many, and when.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, Invalid};
use stationmaster::ops::Outcome;
use stationmaster::service::{Attempt, LoopHandle, Worker};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskState, Timestamp};

use crate::scene::*;
use crate::stores::stores;

#[test]
fn the_most_specific_handler_is_called_and_without_one_the_attempt_fails() {
    for (store, handle) in scenes() {
        let queue = |name: &str| name.try_into().unwrap();
        enqueue(&store, &[task("named").queue(queue("gpu")), task("of-queue").queue(queue("gpu"))]);
        enqueue(&store, &[task("other").queue(queue("cpu")), task("not-served")]);
        let answer = |text: &'static str| move |_: &Attempt| Outcome::Success { value: Some(text.into()) };
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
        let threads = Arc::new(Mutex::new(HashSet::new()));
        let (passes, used) = (gate.clone(), threads.clone());
        let mut served = worker(&store).handler(move |attempt: &Attempt| {
            used.lock().insert(std::thread::current().id());
            let queue = attempt.task().lane.queue.as_str().to_string();
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
        assert_eq!(threads.lock().len(), 5, "a thread runs one attempt after the other");
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_by_new_work_and_by_tasks_that_become_due() {
    for (store, handle) in scenes() {
        let (sender, ran) = mpsc::channel();
        let retry = RetryPolicy::fixed(Duration::from_millis(1)).max_attempts(2).build().unwrap();
        let sender = Mutex::new(sender);
        let running = run(
            worker(&store).places(1).handler(move |attempt: &Attempt| {
                sender
                    .lock()
                    .send((attempt.task().key.task.as_str().to_string(), attempt.task().attempt))
                    .unwrap();
                if attempt.task().attempt == 1 { Err("again") } else { Ok(()) }
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
            run(worker(&store).longest_wait(Duration::from_millis(5)).handler(|_: &Attempt| ()), &handle);
        enqueue(&store, &[task("first")]);
        until("it works", || state(&store, "first") == TaskState::Success);
        // It has asked for what that place can take, and sleeps.
        std::thread::sleep(Duration::from_millis(50));
        enqueue(&store, &[task("from-elsewhere")]);
        until("it was found", || state(&store, "from-elsewhere") == TaskState::Success);
        running.stop();
    }
}

#[test]
fn a_worker_that_cannot_work_says_why() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ends = |worker: Worker| worker.run(&LoopHandle::new()).unwrap_err();
    let handled = || worker(&store).handler(|_: &Attempt| ());
    assert!(matches!(ends(worker(&store)), Error::Invalid(Invalid::Zero { .. })));
    assert!(matches!(ends(handled().places(0)), Error::Invalid(Invalid::Zero { .. })));
    assert!(matches!(ends(handled().lease(Duration::ZERO)), Error::Invalid(Invalid::Duration { .. })));
    let handle = LoopHandle::new();
    let window = stationmaster::admission::AirflowWindow::new(16);
    let refused = handled().queue("q".try_into().unwrap(), 1);
    let refused = refused.policy(stationmaster::admission::Policy::AirflowWindow(window));
    assert!(matches!(refused.run(&handle), Err(Error::Invalid(Invalid::WindowWith { what: "queues" }))));
    assert!(handle.is_stopped(), "others that it stops learn of it");
}

/// A clock that is far ahead of the system's.
#[derive(Debug, Clone, Copy)]
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now() + 1_000 * HOUR
    }
}

#[test]
fn all_that_a_worker_records_is_by_its_clock() {
    for (store, handle) in scenes() {
        let later = [task("ends").not_before(SystemClock.now() + 900 * HOUR)];
        enqueue(&store, &later);
        let running = run(
            worker(&store).clock(Ahead).max_run(|_| Some(HOUR)).handler(|attempt: &Attempt| {
                assert!(attempt.deadline() > Some(SystemClock.now() + 1_000 * HOUR));
                assert!(attempt.holds(Ahead.now()) && !attempt.is_cancelled());
                attempt.end((), |_| Ok(()))
            }),
            &handle,
        );
        until("it has ended", || state(&store, "ends").is_end());
        assert_eq!(running.stop().working, vec![]);
        let ended = record(&store, "ends");
        assert_eq!(ended.state, TaskState::Success, "{ended:?}");
        let least = Some(SystemClock.now() + 999 * HOUR);
        assert!(ended.queued_at > least && ended.started_at > least && ended.ended_at > least, "{ended:?}");
    }
}

/// A clock that is set back by an hour on request.
#[derive(Debug, Clone, Default)]
struct SetBack(Arc<AtomicBool>);

impl Clock for SetBack {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now();
        if self.0.load(Ordering::SeqCst) { now - HOUR } else { now }
    }

    fn steady(&self) -> Timestamp {
        SystemClock.steady()
    }
}

#[test]
fn a_clock_that_is_set_back_delays_nothing() {
    for (store, _) in scenes() {
        let (clock, handle, begins) = (SetBack::default(), LoopHandle::new(), Gate::new());
        let (work, sets_back) = (begins.clone(), clock.clone());
        // Nothing wakes it, and its handler ignores the stop.
        let hangs = worker(&store).clock(clock.clone()).longest_wait(Duration::from_millis(300));
        let hangs =
            hangs.max_run(|task| (task.key.task.as_str() == "long").then_some(Duration::from_millis(500)));
        let hangs = hangs.patience(Duration::from_millis(500)).handler(move |attempt: &Attempt| {
            match attempt.task().key.task.as_str() {
                "hangs" => work.pass(),
                _ => drop(attempt.wait(MINUTE)),
            }
            Ok::<_, Error>(())
        });
        let running = run(hangs, &handle);
        enqueue(&store, &[task("hangs"), task("long")]);
        until("both have begun", || {
            ["hangs", "long"].iter().all(|name| {
                let now = state(&store, name);
                now == TaskState::Running || now.is_end()
            })
        });
        sets_back.0.store(true, Ordering::SeqCst);
        let began = Instant::now();
        let due = [task("asked").not_before(SystemClock.now() - 2 * HOUR)];
        store.write(|tx| tx.enqueue(SystemClock.now() - HOUR, &due)).unwrap();
        until("it asks", || state(&store, "asked") == TaskState::Running);
        until("the longest run is over", || state(&store, "long").is_end());
        let report = running.stop();
        assert!(began.elapsed() < MINUTE, "{:?}", began.elapsed());
        assert_eq!(report.working.len(), 1);
        begins.open();
    }
}
