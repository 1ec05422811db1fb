//! Handlers that are futures, and a worker that is awaited.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::Outcome;
use stationmaster::service::{Attempt, Cancelled, LoopHandle, Service, Upkeep, Worker, WorkerReport};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{Error, NewTask, Result, TaskRecord, TaskState};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::scene::{key, secs};
use crate::stores::stores;

/// Two threads: one that handlers block would not show.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn worker(store: &Arc<dyn Store>) -> Worker {
    Worker::new(store.clone(), "worker".try_into().unwrap()).places(4).longest_wait(Duration::from_millis(20))
}

fn enqueue(store: &Arc<dyn Store>, names: &[&str]) {
    let tasks: Vec<NewTask> = names.iter().map(|name| NewTask::new(key(name))).collect();
    store.write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();
}

fn record(store: &Arc<dyn Store>, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

fn states<const N: usize>(store: &Arc<dyn Store>, names: [&str; N]) -> [TaskState; N] {
    names.map(|name| record(store, name).state)
}

fn name(attempt: &Attempt) -> &str {
    attempt.task().key.task.as_str()
}

/// Waits until this is so; a test whose wait is never over fails.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("in vain: {what}");
}

/// What a worker on this runtime comes to that is stopped when this is so.
fn stopped_when(
    runtime: &Runtime,
    handle: &LoopHandle,
    worker: Worker,
    is_so: impl FnMut() -> bool,
) -> Result<WorkerReport> {
    let own = handle.clone();
    let running = runtime.spawn(async move { worker.run_async(&own).await });
    until("the worker may stop", is_so);
    handle.stop();
    runtime.block_on(running).unwrap()
}

/// Counts when it is dropped.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn count(counter: &Arc<AtomicUsize>) -> usize {
    counter.load(Ordering::SeqCst)
}

#[test]
fn what_a_future_returns_is_how_its_task_ends() {
    for store in stores() {
        let (runtime, handle) = (runtime(), LoopHandle::new());
        let names = ["ends", "fails", "panics", "panics-before", "with-more"];
        enqueue(&store, &names);
        let handler = |attempt: Attempt| {
            assert!(name(&attempt) != "panics-before", "on purpose");
            async move {
                tokio::task::yield_now().await;
                match name(&attempt) {
                    "fails" => return Err(Error::abort("no route to host")),
                    "panics" => panic!("on purpose"),
                    "with-more" => {
                        let more = NewTask::new(key("more"));
                        attempt
                            .end_async((), move |tx| {
                                tx.enqueue(SystemClock.now(), std::slice::from_ref(&more)).map(drop)
                            })
                            .await?;
                        return Err(Error::abort("what it returns now changes nothing"));
                    }
                    _ => {}
                }
                Ok(())
            }
        };
        // Threads and futures side by side.
        let more = "more".try_into().unwrap();
        let worker = worker(&store).handler_async(runtime.handle(), handler).task_handler(
            key("more").workflow,
            more,
            |_: &Attempt| Outcome::Success { value: Some("thread".into()) },
        );
        let are_over = || {
            let more = store.read(|tx| tx.tasks(&[key("more")])).unwrap().remove(0);
            states(&store, names).iter().all(|state| state.is_end())
                && more.is_some_and(|task| task.state.is_end())
        };
        let report = stopped_when(&runtime, &handle, worker, are_over).unwrap();
        let counts = (report.stored, report.ended_elsewhere, report.refused);
        assert_eq!(counts, (5, 1, 0), "all but the one that ended itself");
        let [ends, fails, panics, before, with_more] = states(&store, names);
        assert_eq!([ends, with_more], [TaskState::Success; 2]);
        assert_eq!([fails, panics, before], [TaskState::Failed; 3]);
        assert!(record(&store, "fails").message.unwrap().contains("no route to host"));
        for name in ["panics", "panics-before"] {
            assert!(record(&store, name).message.unwrap().starts_with("the handler panicked: on purpose"));
        }
        assert_eq!(record(&store, "more").value.as_deref(), Some("thread"));
    }
}

#[test]
fn a_future_that_runs_too_long_is_notified_and_then_dropped() {
    for store in stores() {
        let (runtime, handle) = (runtime(), LoopHandle::new());
        enqueue(&store, &["heeds", "ignores"]);
        let dropped = Arc::new(AtomicUsize::new(0));
        let counts = dropped.clone();
        let worker = worker(&store)
            .patience(Duration::from_secs(1))
            .max_run(|_| Some(Duration::from_millis(1)))
            .handler_async(runtime.handle(), move |attempt| {
                let counts = Counts(counts.clone());
                async move {
                    let _counts = counts;
                    if name(&attempt) == "ignores" {
                        std::future::pending::<()>().await;
                    }
                    attempt.until_cancelled().await;
                    Outcome::Success { value: attempt.cancelled().map(|why| format!("{why:?}")) }
                }
            });
        let are_over = || states(&store, ["heeds", "ignores"]).iter().all(|state| state.is_end());
        let report = stopped_when(&runtime, &handle, worker, are_over).unwrap();
        assert_eq!((report.stored, report.working), (2, vec![]));
        assert_eq!(record(&store, "heeds").value.as_deref(), Some("RanTooLong"));
        assert_eq!(states(&store, ["heeds", "ignores"]), [TaskState::Success, TaskState::Failed]);
        assert_eq!(count(&dropped), 2);
    }
}

/// One that ignores it is dropped at the deadline, and then its place is free and its task has ended.
#[test]
fn a_future_whose_task_was_cancelled_is_notified_and_dropped_at_the_deadline() {
    for store in stores() {
        let (runtime, handle) = (runtime(), LoopHandle::new());
        let names = ["heeds", "ignores"];
        enqueue(&store, &names);
        let (dropped, heard) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let (counts, hears) = (dropped.clone(), heard.clone());
        let worker = worker(&store).patience(secs(3_600)).lease(Duration::from_millis(600)).handler_async(
            runtime.handle(),
            move |attempt| {
                let (counts, hears) = (Counts(counts.clone()), hears.clone());
                async move {
                    let _counts = counts;
                    if name(&attempt) == "ignores" {
                        std::future::pending::<()>().await;
                    }
                    attempt.until_cancelled().await;
                    *hears.lock() = attempt.cancelled();
                    Err::<(), _>("stopped halfway")
                }
            },
        );
        let (canceller, deadline) = (store.clone(), Mutex::new(None));
        let are_over = || {
            let running = states(&canceller, names).iter().all(|state| *state == TaskState::Running);
            if running && deadline.lock().is_none() {
                let (now, grace) = (SystemClock.now(), Duration::from_millis(1_200));
                canceller.write(|tx| tx.cancel(now, grace, &names.map(key), "by hand")).unwrap();
                *deadline.lock() = Some(now + grace);
            }
            states(&canceller, names).iter().all(|state| state.is_end())
        };
        let report = stopped_when(&runtime, &handle, worker, are_over).unwrap();
        let deadline = deadline.lock().unwrap();
        assert_eq!(*heard.lock(), Some(Cancelled::Requested { deadline }));
        assert_eq!(states(&store, names), [TaskState::Cancelled; 2]);
        assert!(record(&store, "ignores").ended_at.unwrap() >= deadline);
        assert_eq!((report.stored, report.working.len(), count(&dropped)), (2, 0, 2));
    }
}

#[test]
fn a_future_whose_lease_was_lost_is_dropped() {
    for store in stores() {
        let (runtime, handle) = (runtime(), LoopHandle::new());
        enqueue(&store, &["a"]);
        let (dropped, (sender, begun)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        let (counts, sender) = (dropped.clone(), Mutex::new(sender));
        let worker = worker(&store).patience(secs(3_600)).lease(secs(1)).handler_async(
            runtime.handle(),
            move |attempt| {
                let counts = Counts(counts.clone());
                sender.lock().send(()).unwrap();
                async move {
                    let _counts = counts;
                    if attempt.task().attempt == 1 {
                        std::future::pending::<()>().await;
                    }
                }
            },
        );
        let reap = || {
            begun.recv_timeout(secs(60)).unwrap();
            let later = SystemClock.now() + secs(3_600);
            Upkeep::new(store.clone()).grace(Duration::ZERO).tick(later).unwrap();
            until("another attempt has ended it", || record(&store, "a").state.is_end());
            true
        };
        let report = stopped_when(&runtime, &handle, worker, reap).unwrap();
        assert_eq!((report.stored, report.refused), (1, 1));
        assert_eq!((count(&dropped), record(&store, "a").state), (2, TaskState::Success));
    }
}

#[test]
fn a_future_that_ignores_the_stop_is_dropped_and_its_task_given_back() {
    for store in stores() {
        let (runtime, handle) = (runtime(), LoopHandle::new());
        enqueue(&store, &["heeds", "ignores"]);
        let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begins, counts) = (begun.clone(), dropped.clone());
        let worker =
            worker(&store).patience(Duration::from_secs(1)).handler_async(runtime.handle(), move |attempt| {
                let counts = Counts(counts.clone());
                begins.fetch_add(1, Ordering::SeqCst);
                async move {
                    let _counts = counts;
                    if name(&attempt) == "ignores" {
                        std::future::pending::<()>().await;
                    }
                    attempt.until_cancelled().await;
                    assert_eq!(attempt.cancelled(), Some(Cancelled::Stopping));
                }
            });
        let report = stopped_when(&runtime, &handle, worker, || count(&begun) == 2).unwrap();
        assert_eq!((report.stored, report.working.len(), count(&dropped)), (2, 0, 2));
        assert_eq!(states(&store, ["heeds", "ignores"]), [TaskState::Success, TaskState::Scheduled]);
        assert!(store.read(|tx| tx.all_pools()).unwrap().iter().all(|pool| pool.used == 0));
    }
}

#[test]
fn a_worker_whose_future_is_dropped_stops_as_usual() {
    for store in stores() {
        let handle = LoopHandle::new();
        enqueue(&store, &["heeds"]);
        let runtime = runtime();
        let (sender, begun) = mpsc::channel();
        let sender = Mutex::new(sender);
        let worker = worker(&store).handler_async(runtime.handle(), move |attempt| {
            sender.lock().send(()).unwrap();
            async move { attempt.until_cancelled().await }
        });
        let own = handle.clone();
        let running = runtime.spawn(async move { worker.run_async(&own).await });
        begun.recv_timeout(secs(60)).unwrap();
        running.abort();
        assert!(runtime.block_on(running).unwrap_err().is_cancelled());
        until("its end is stored", || record(&store, "heeds").state == TaskState::Success);
        assert!(handle.is_stopped());
    }
}

#[test]
fn what_a_runtime_drops_that_is_shut_down_is_given_back() {
    for store in stores() {
        enqueue(&store, &["a"]);
        let (runtime, handle, begun) = (runtime(), LoopHandle::new(), Arc::new(AtomicUsize::new(0)));
        let begins = begun.clone();
        let worker = worker(&store).handler_async(runtime.handle(), move |_| {
            begins.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>()
        });
        let own = handle.clone();
        runtime.spawn(async move { worker.run_async(&own).await });
        until("it works", || count(&begun) == 1);
        drop(runtime); // waits until the worker has stopped
        let task = record(&store, "a");
        assert_eq!((task.state, task.forgiven, count(&begun)), (TaskState::Scheduled, 1, 1));
    }
}

#[test]
fn outside_a_runtime_a_worker_is_not_awaited() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    enqueue(&store, &["a"]);
    let runtime = Builder::new_current_thread().build().unwrap();
    let worker = worker(&store).handler_async(runtime.handle(), |_| async {});
    let handle = LoopHandle::new();
    let mut running = std::pin::pin!(worker.run_async(&handle));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Handle::try_current().is_err());
    let refused = running.as_mut().poll(&mut context);
    assert!(matches!(refused, std::task::Poll::Ready(Err(Error::NoRuntime))));
    assert_eq!(record(&store, "a").state, TaskState::Scheduled);
}
