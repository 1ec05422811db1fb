//! How attempts end, and what is stored of that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::Error;
use stationmaster::ops::{Fenced, Finish, Outcome};
use stationmaster::sensor::{NewSensor, OnLanded, PokeOutcome, Settings};
use stationmaster::service::{Attempt, LoopHandle, PokeRequest, Poker, Service};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::task::TaskQuery;
use stationmaster::{NewTask, Result, TaskState};

use crate::scene::*;
use crate::stores::stores;

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
                "recorded" => task.attempts_as_runs(true),
                _ => task,
            })
            .collect();
        enqueue(&store, &tasks);
        let running = run(
            worker(&store).handler(|attempt: &Attempt| {
                assert_eq!(attempt.task().attempt, 1);
                assert!(
                    attempt.holds(SystemClock.now())
                        && !attempt.is_cancelled()
                        && attempt.deadline().is_none()
                );
                match attempt.task().payload.as_str() {
                    "value" => Ok(Outcome::Success { value: Some("7".into()) }),
                    "error" | "retry" => Err("no route to host"),
                    "never" => Ok(Finish::failed(attempt.lease(), "bad input").outcome),
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
        until("all have ended", || names.iter().all(is_over));
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
        let runs = store.read(|tx| tx.runs(std::slice::from_ref(&runs))).unwrap();
        assert!(runs[0].as_ref().is_some_and(|run| run.stop.is_some()), "the attempt was recorded");
        assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    }
}

#[test]
fn a_handler_ends_its_task_with_what_follows_in_one_transaction() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("first")]);
        let running = run(
            worker(&store).handler(|attempt: &Attempt| match attempt.task().key.task.as_str() {
                "first" => {
                    let refused = attempt.end((), |tx| {
                        tx.enqueue(SystemClock.now(), &[task("not-to-be")])?;
                        Err(Error::abort("thought better of it"))
                    });
                    assert!(matches!(refused, Err(Error::Aborted(_))));
                    attempt
                        .end(Outcome::Success { value: Some("1".into()) }, |tx| {
                            let ended = tx.tasks(&[key("first")])?.remove(0).unwrap();
                            assert_eq!(ended.state, TaskState::Success, "it has ended already");
                            tx.enqueue(SystemClock.now(), &[task("second")]).map(drop)
                        })
                        .unwrap();
                    assert!(!attempt.holds(SystemClock.now()));
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
        let counts = (report.stored, report.ended_elsewhere, report.refused);
        assert_eq!(counts, (1, 1, 0), "the second task, and the first");
        assert_eq!(
            (state(&store, "first"), state(&store, "second")),
            (TaskState::Success, TaskState::Success)
        );
        assert!(store.read(|tx| tx.tasks(&[key("not-to-be")])).unwrap()[0].is_none());
    }
}

#[test]
fn a_task_that_ended_elsewhere_is_not_ended_again() {
    for store in stores() {
        let handle = LoopHandle::new();
        enqueue(&store, &[task("a"), task("b")]);
        let own = store.clone();
        let running = run(
            // Its commits wake no one. The place that becomes free lets the second task begin.
            worker(&store).places(1).handler(move |attempt: &Attempt| {
                // As the host's own transaction would.
                let end = [Finish::success_with(attempt.lease(), "by the host")];
                own.write(|tx| tx.finish(SystemClock.now(), &end)?.fenced()).unwrap();
                attempt.ended_elsewhere();
                Err::<(), _>("what it returns now changes nothing")
            }),
            &handle,
        );
        until("they have ended", || ["a", "b"].iter().all(|name| state(&store, name).is_end()));
        let report = running.stop();
        let counts = (report.stored, report.ended_elsewhere, report.refused);
        assert_eq!(counts, (0, 2, 0), "the worker has stored nothing");
        assert_eq!(record(&store, "a").value.as_deref(), Some("by the host"));
    }
}

#[test]
fn a_handler_knows_that_its_sensor_has_landed() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("waits")]);
        let running = run(
            worker(&store).handler(|attempt: &Attempt| {
                if let Some(value) = attempt.landed() {
                    assert_eq!((value, attempt.task().attempt), ("", 2), "it landed without a value");
                    return Ok(());
                }
                let settings = Settings::new(MINUTE, HOUR)?.on_landed(OnLanded::Resume);
                let context = PokeContext::from_json("{}")?;
                let sensor = [NewSensor::new(attempt.lease(), "it".try_into()?, context, settings)];
                attempt.store().write(|tx| tx.register(SystemClock.now(), &sensor)?.fenced())?;
                attempt.ended_elsewhere();
                Ok::<_, Error>(())
            }),
            &handle,
        );
        until("it waits", || state(&store, "waits") == TaskState::Sensing);
        let poker = Poker::new(store.clone(), "poker".try_into().unwrap()).wait_for_answers(MINUTE);
        let mut poker = poker.kind("it".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::Landed(None));
        assert_eq!(poker.tick(SystemClock.now()).unwrap().landed, 1);
        until("it has ended", || state(&store, "waits").is_end());
        let report = running.stop();
        assert_eq!((report.stored, report.ended_elsewhere), (1, 1), "it has not registered again");
        assert_eq!(state(&store, "waits"), TaskState::Success);
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
            worker(&shared).gather_ends(HOUR).handler(move |_: &Attempt| {
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

/// Any reader sees how the work is going, and none of it when the lease has ended.
#[test]
fn what_a_handler_says_is_seen_while_it_works() {
    for (store, handle) in scenes() {
        enqueue(&store, &[task("t")]);
        let gate = Gate::new();
        let passes = gate.clone();
        let running = run(
            worker(&store).lease(Duration::from_millis(600)).handler(move |attempt: &Attempt| {
                attempt.note("0 of 40 files");
                attempt.note("12 of 40 files");
                passes.pass();
                attempt.ended_elsewhere();
                attempt.note("after the end");
            }),
            &handle,
        );
        let lease = || record(&store, "t").lease;
        until("it is seen", || lease().is_some_and(|lease| lease.note.is_some()));
        let noted = record(&store, "t");
        let lease = noted.lease.clone().unwrap();
        assert_eq!(lease.note.as_deref(), Some("12 of 40 files"));
        assert!(lease.noted_at >= noted.started_at);
        let listed = store.read(|tx| tx.list_tasks(&TaskQuery::leased())).unwrap().tasks;
        assert_eq!(listed[0].lease.as_ref().unwrap().note, lease.note);
        gate.open();
        running.stop();
    }
}
