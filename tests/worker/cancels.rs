//! What a worker does about tasks that are cancelled in the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Cancellation, Outcome};
use stationmaster::service::{Attempt, Cancelled, LoopHandle, Upkeep, drive};
use stationmaster::store::Store;
use stationmaster::{NewTask, TaskState, Timestamp};

use crate::scene::*;

/// Asks for the end of these tasks, and returns the deadline.
fn cancel(store: &Arc<dyn Store>, grace: Duration, names: &[&str]) -> Timestamp {
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    let now = SystemClock.now();
    let asked = store.write(|tx| tx.cancel(now, grace, &keys, "by hand")).unwrap();
    assert!(asked.iter().all(|asked| *asked == Cancellation::AskedUntil(now + grace)), "{asked:?}");
    now + grace
}

#[test]
fn a_handler_is_notified_and_its_end_is_right() {
    for (store, handle) in scenes() {
        let names = ["returns", "fails", "gives-back", "ends"];
        let retry = RetryPolicy::fixed(Duration::ZERO).build().unwrap();
        let tasks: Vec<NewTask> = names.iter().map(|name| task(name).retry(retry.clone())).collect();
        enqueue(&store, &tasks);
        let heard = Arc::new(Mutex::new(BTreeMap::new()));
        let hears = heard.clone();
        // The cancel wakes the keeper: a third of this lease would be too late.
        let running = run(
            worker(&store).lease(HOUR).handler(move |attempt: &Attempt| {
                let name = attempt.task().key.task.to_string();
                hears.lock().insert(name.clone(), None);
                while !attempt.wait(MINUTE) {}
                assert!(attempt.holds(SystemClock.now()), "it is still the attempt's");
                hears.lock().insert(name.clone(), attempt.cancelled());
                match name.as_str() {
                    "fails" => Err("stopped halfway"),
                    "gives-back" => Ok(Outcome::GivenBack),
                    "ends" => {
                        attempt.end(Outcome::GivenBack, |_| Ok(())).unwrap();
                        Ok(().into())
                    }
                    _ => Ok(().into()),
                }
            }),
            &handle,
        );
        until("all work", || heard.lock().len() == 4);
        let deadline = cancel(&store, MINUTE, &names);
        until("all have ended", || names.iter().all(|name| state(&store, name).is_end()));
        let told = Some(Cancelled::Requested { deadline });
        assert!(heard.lock().values().all(|why| *why == told), "{heard:?}");
        assert_eq!(state(&store, "returns"), TaskState::Success, "what was done is done");
        for name in ["fails", "gives-back", "ends"] {
            let ended = record(&store, name);
            assert_eq!((ended.state, ended.attempt), (TaskState::Cancelled, 1), "{name}");
            assert_eq!(ended.message.as_deref(), Some("by hand"));
        }
        let report = running.stop();
        assert_eq!((report.stored, report.refused, report.working), (3, 0, vec![]));
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}

/// The task ends at its deadline, although the worker renews and the handler works on; and the worker goes on.
#[test]
fn a_handler_that_ignores_it_is_fenced_off_at_the_deadline() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("ignores")]);
        let (gate, whys) = (Gate::new(), Arc::new(Mutex::new(None)));
        let (passes, told) = (gate.clone(), whys.clone());
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let running = run(
            worker(&store).lease(Duration::from_millis(600)).handler(move |attempt: &Attempt| {
                if attempt.task().key.task.as_str() == "ignores" {
                    begins.store(true, Ordering::SeqCst);
                    passes.pass();
                    // On a busy machine the keeper may learn of it later than this.
                    until("the loss is told", || attempt.cancelled() == Some(Cancelled::LeaseLost));
                    assert!(!attempt.holds(SystemClock.now()));
                    *told.lock() = attempt.cancelled();
                }
                Ok::<_, stationmaster::Error>(())
            }),
            &handle,
        );
        let reaps = LoopHandle::new();
        let (stops, mut upkeep) = (reaps.clone(), Upkeep::new(store.clone()).grace(Duration::ZERO));
        let upkeep = std::thread::spawn(move || {
            drive(&mut upkeep, &SystemClock, &stops, Duration::from_millis(20), |_| {
                std::ops::ControlFlow::Continue(())
            });
        });
        // What is cancelled between its start in the store and its handler ends without the handler.
        until("its handler runs", || begun.load(Ordering::SeqCst));
        cancel(&store, Duration::from_millis(1_500), &["ignores"]);
        until("it has ended", || state(&store, "ignores") == TaskState::Cancelled);
        enqueue(&store, &[task("next")]);
        until("the worker goes on", || state(&store, "next") == TaskState::Success);
        std::thread::sleep(Duration::from_millis(300));
        gate.open();
        until("the handler returns", || whys.lock().is_some());
        assert_eq!(*whys.lock(), Some(Cancelled::LeaseLost), "what matters most");
        let report = running.stop();
        // On a busy machine the first lease may end before the cancel, and the task begin twice.
        assert!(report.stored == 1 && report.refused >= 1, "what it returned is refused: {report:?}");
        assert_eq!(record(&store, "ignores").message.as_deref(), Some("by hand"));
        reaps.stop();
        upkeep.join().unwrap();
    }
}

#[test]
fn a_further_cancel_brings_the_deadline_forward() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("t")]);
        let deadlines = Arc::new(Mutex::new(Vec::new()));
        let hears = deadlines.clone();
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let running = run(
            worker(&store).lease(HOUR).handler(move |attempt: &Attempt| {
                begins.store(true, Ordering::SeqCst);
                while !attempt.wait(MINUTE) {}
                // Told already, it works on and asks again until it is to return sooner.
                let mut last = None;
                until("the deadline comes forward", || {
                    if attempt.cancelled() != last {
                        last = attempt.cancelled();
                        hears.lock().extend(last);
                    }
                    hears.lock().len() == 2
                });
                Ok::<_, stationmaster::Error>(())
            }),
            &handle,
        );
        until("its handler runs", || begun.load(Ordering::SeqCst));
        let first = cancel(&store, HOUR, &["t"]);
        until("it is told", || deadlines.lock().len() == 1);
        let second = cancel(&store, MINUTE, &["t"]);
        until("it has ended", || state(&store, "t").is_end());
        let told = [first, second].map(|deadline| Cancelled::Requested { deadline });
        assert_eq!(*deadlines.lock(), told);
        running.stop();
    }
}
