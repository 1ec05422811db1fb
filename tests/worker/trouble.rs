//! Leases that are lost, and stores that fail.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, StoreErrorKind};
use stationmaster::ops::{Fenced, Finish, Mark, Outcome};
use stationmaster::service::{Attempt, Cancelled, LoopHandle, Service, Upkeep};
use stationmaster::store::{Store, TxMode};
use stationmaster::task::KeptAttempts;
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{TaskKey, TaskState};

use crate::scene::*;
use crate::stores::{kinds, stores};

#[test]
fn a_handler_whose_lease_was_lost_is_notified_and_its_end_is_refused() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a")]);
        let (sender, told) = mpsc::channel();
        let sender = Mutex::new(sender);
        let (losses, tells) = losses();
        let running = run(
            // Renewed after a third of it, which is when it learns of the loss.
            worker(&store).places(1).lease(Duration::from_secs(1)).on_error(tells).handler(
                move |attempt: &Attempt| {
                    sender.lock().send(None).unwrap();
                    if attempt.task().attempt == 1 {
                        while !attempt.wait(MINUTE) {}
                        sender.lock().send(attempt.cancelled()).unwrap();
                    }
                    Outcome::Success { value: Some(attempt.task().attempt.to_string()) }
                },
            ),
            &handle,
        );
        assert_eq!(told.recv_timeout(MINUTE).unwrap(), None);
        // By the clock of another holder's upkeep the lease has expired.
        let later = SystemClock.now() + HOUR;
        let reaped = Upkeep::new(store.clone()).grace(Duration::ZERO).tick(later).unwrap().reaped;
        assert!(reaped.len() <= 1, "or it has expired by itself");
        assert_eq!(told.recv_timeout(MINUTE).unwrap(), Some(Cancelled::LeaseLost));
        until("another attempt has ended it", || state(&store, "a").is_end());
        let report = running.stop();
        assert_eq!((report.stored, report.refused), (1, 1));
        assert_eq!(*losses.lock(), [(key("a"), 1)], "the host was told once");
        assert_eq!(record(&store, "a").value.as_deref(), Some("2"), "not what the first attempt said");
    }
}

/// Tasks and epochs.
type Losses = Arc<Mutex<Vec<(TaskKey, i64)>>>;

/// What a worker tells of lost leases, and what it tells that to.
fn losses() -> (Losses, impl Fn(&Error) + Send + Sync + 'static) {
    let losses = Losses::default();
    let told = losses.clone();
    let tells = move |error: &Error| {
        if let Error::LeaseLost { task, epoch } = error {
            told.lock().push(((**task).clone(), *epoch));
        }
    };
    (losses, tells)
}

#[test]
fn the_host_is_notified_of_a_lost_lease_although_its_handler_goes_on() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("hangs")]);
        let (gate, (losses, tells)) = (Gate::new(), losses());
        let passes = gate.clone();
        let running = run(
            worker(&store)
                .lease(Duration::from_secs(1))
                .on_error(tells)
                .handler(move |_: &Attempt| passes.pass()),
            &handle,
        );
        until("it works", || state(&store, "hangs") == TaskState::Running);
        let cancelled = Mark::new(key("hangs"), TaskState::Cancelled, "by hand");
        store.write(|tx| tx.mark(SystemClock.now(), std::slice::from_ref(&cancelled))).unwrap();
        until("the host is told", || !losses.lock().is_empty());
        gate.open();
        assert_eq!(running.stop().refused, 1);
        assert_eq!(*losses.lock(), [(key("hangs"), 1)], "and not again");
    }
}

/// The keeper finds the lease gone before the handler says that it ended it.
#[test]
fn an_end_of_a_hosts_own_is_no_loss() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a")]);
        let (losses, tells) = losses();
        let running = run(
            worker(&store).lease(Duration::from_millis(300)).on_error(tells).handler(|attempt: &Attempt| {
                let end = [Finish::success(attempt.lease())];
                attempt.store().write(|tx| tx.finish(SystemClock.now(), &end)?.fenced()).unwrap();
                // Of the stop it hears, too.
                while attempt.cancelled() != Some(Cancelled::LeaseLost) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                attempt.ended_elsewhere();
                // Longer than the worker waits before it tells of a loss.
                std::thread::sleep(Duration::from_millis(1_500));
            }),
            &handle,
        );
        until("it has ended", || state(&store, "a") == TaskState::Success);
        assert_eq!((running.stop().refused, &losses.lock()[..]), (0, &[][..]));
    }
}

#[test]
fn a_store_that_fails_for_a_while_loses_no_end() {
    for store in stores() {
        let (faults, handle) = (Arc::new(FaultStore::new(store.clone())), LoopHandle::new());
        enqueue(&store, &[task("a"), task("b")]);
        let (fails, errors) = (faults.clone(), Arc::new(Mutex::new(Vec::new())));
        let told = errors.clone();
        let shared: Arc<dyn Store> = faults.clone();
        let running = run(
            worker(&shared)
                .on_error(move |error| {
                    assert!(matches!(error, Error::Store(_)));
                    told.lock().push(Instant::now());
                })
                .handler(move |_: &Attempt| fails.refuse(TxMode::Write, 5)),
            &handle,
        );
        until("both have ended", || ["a", "b"].iter().all(|name| state(&store, name) == TaskState::Success));
        let report = running.stop();
        assert_eq!((report.stored, report.unstored.len()), (2, 0));
        let errors = errors.lock();
        assert!(errors.len() >= 5, "the host was told");
        // 10 ms, then twice as long each time, or the store has no rest and the host's log is flooded.
        assert!(errors[0].elapsed() > Duration::from_millis(100), "it pauses between errors");
    }
}

#[test]
fn an_error_says_what_the_worker_was_doing() {
    for store in stores() {
        let (faults, handle) = (Arc::new(FaultStore::new(store.clone())), LoopHandle::new());
        enqueue(&store, &[task("renews"), task("ends")]);
        let (fails, errors) = (faults.clone(), Arc::new(Mutex::new(Vec::new())));
        let (told, seen) = (errors.clone(), errors.clone());
        faults.refuse(TxMode::Write, 1);
        let shared: Arc<dyn Store> = faults.clone();
        let running = run(
            worker(&shared)
                .places(1)
                .lease(Duration::from_secs(3))
                .on_error(move |error| told.lock().push(error.to_string()))
                .handler(move |attempt: &Attempt| {
                    fails.refuse(TxMode::Write, 1);
                    if attempt.task().key.task.as_str() == "renews" {
                        until("the lease was to be renewed", || seen.lock().len() == 2);
                    }
                }),
            &handle,
        );
        until("both have ended", || ["renews", "ends"].iter().all(|name| state(&store, name).is_end()));
        running.stop();
        let errors = errors.lock();
        let heads: Vec<&str> = errors.iter().filter_map(|text| text.split(": ").next()).collect();
        assert_eq!(
            heads,
            ["asking for tasks", "renewing leases", "storing the ends of attempts"],
            "{errors:?}"
        );
    }
}

/// At each call in turn, before and after its effect.
#[test]
fn whichever_call_of_the_store_fails_a_task_runs_once_and_ends_once() {
    let (kinds, heads) = (kinds(), Arc::new(Mutex::new(BTreeSet::new())));
    for (kind, when) in kinds.iter().flat_map(|kind| [(kind, When::Before), (kind, When::After)]) {
        for at in (1..=200).step_by(kind.stride(3)) {
            let faults = Arc::new(FaultStore::new(kind.shared()));
            let heard = heads.clone();
            let tells = move |error: &Error| {
                heard.lock().extend(error.to_string().split(": ").next().map(ToOwned::to_owned));
            };
            let (store, handle): (Arc<dyn Store>, _) = (faults.clone(), LoopHandle::new());
            let kept = task("a").keep_attempts(KeptAttempts::All);
            enqueue(&store, &[kept, task("recorded").attempts_as_runs(true)]);
            faults.arm(Fault::new(at, when, StoreErrorKind::Io));
            let (begun, counts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counted = begun.clone();
            let running = run(
                worker(&store).on_error(tells).handler(move |attempt: &Attempt| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if attempt.task().key.task.as_str() == "recorded" {
                        let counts = counts.clone();
                        attempt.end((), move |_| {
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
            assert_eq!(inner.read(|tx| tx.attempts(&[key("a")])).unwrap()[0].len(), 1, "call {at} {when:?}");
            if faults.disarm().is_none() {
                assert!(at > 10, "{at} calls were hit");
                break;
            }
        }
    }
    // A sample of calls may hit none of a kind.
    let (heads, is_sampled) = (heads.lock(), kinds.iter().all(|kind| kind.is_sampled()));
    for call in ["asking for tasks", "starting tasks", "storing the ends of attempts"] {
        assert!(is_sampled || heads.contains(call), "{call} was in no error: {heads:?}");
    }
}

#[test]
fn leases_are_renewed_while_handlers_work() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("a")]);
        let (gate, lease) = (Gate::new(), Duration::from_secs(2));
        let passes = gate.clone();
        let running = run(worker(&store).lease(lease).handler(move |_: &Attempt| passes.pass()), &handle);
        let expiry = || record(&store, "a").lease.map(|lease| lease.expires_at);
        until("it works", || state(&store, "a") == TaskState::Running);
        let first = expiry();
        until("it is renewed", || expiry() > first);
        gate.open();
        until("it has ended", || state(&store, "a") == TaskState::Success);
        running.stop();
    }
}

/// Its thread dies while it drops what the panic brought.
#[test]
fn a_panic_whose_payload_panics_keeps_no_later_attempt_waiting() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("when it is dropped");
        }
    }
    let (store, handle) = scenes().next().unwrap();
    enqueue(&store, &[task("a")]);
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let running = run(
        worker(&store).places(1).handler(move |_: &Attempt| {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                std::panic::panic_any(Payload);
            }
        }),
        &handle,
    );
    until("it has ended", || state(&store, "a").is_end());
    assert_eq!((state(&store, "a"), begun.load(Ordering::SeqCst)), (TaskState::Success, 2));
    running.stop();
}
