//! A holder that does not know whether its call took effect may make it again, and learns the result: on
//! every store.
#![allow(clippy::unwrap_used)]

mod stores;

use std::sync::Arc;
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::ops::{AdmitRequest, Fenced, Finish, Finished, Mark};
use stationmaster::run::ActiveQuery;
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::store::Store;
use stationmaster::store::contract::Ending;
use stationmaster::task::LeaseLoss;
use stationmaster::{Error, LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::stores;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

fn grant(store: &Arc<dyn Store>, now: i64) -> LeaseRef {
    let request = format!("tick-{now}").as_str().try_into().unwrap();
    let order = AdmitRequest::new("h".try_into().unwrap(), request, 1, Duration::from_secs(10));
    store.write(|tx| tx.admit(at(now), &order)).unwrap().granted[0].lease_ref()
}

/// Enqueues a task that is retried once after a second, and grants it at 0.
fn granted(store: &Arc<dyn Store>, name: &str) -> LeaseRef {
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(2).build().unwrap();
    let task = NewTask::new(key(name)).retry(retry).attempts_as_runs(true);
    store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task))).unwrap();
    let order =
        AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, Duration::from_secs(10));
    let task = store.write(|tx| tx.admit(at(0), &order)).unwrap().granted.remove(0);
    assert_eq!(task.key, key(name));
    task.lease_ref()
}

fn task(store: &Arc<dyn Store>, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

fn starts(store: &Arc<dyn Store>, now: i64, lease: LeaseRef) -> bool {
    store.write(|tx| tx.start(at(now), &[lease])).unwrap() == [true]
}

fn end(store: &Arc<dyn Store>, now: i64, ends: Finish) -> Finished {
    store.write(|tx| tx.finish(at(now), std::slice::from_ref(&ends))).unwrap().remove(0)
}

/// What a holder may say of its attempt.
fn sayings(lease: LeaseRef) -> [Finish; 5] {
    [
        Finish::success_with(lease, "x"),
        Finish::success(lease),
        Finish::failed(lease, "no"),
        Finish::skipped(lease, "not needed"),
        Finish::given_back(lease),
    ]
}

#[test]
fn a_start_may_be_repeated_and_keeps_its_first_instant() {
    for store in stores() {
        let lease = granted(&store, "t");
        assert!(starts(&store, 1, lease) && starts(&store, 2, lease), "the same holder asked twice");
        let twice = store.write(|tx| tx.start(at(3), &[lease, lease])).unwrap();
        assert_eq!(twice, [true, true]);
        assert_eq!(task(&store, "t").started_at, Some(at(1)));
        let runs = store.read(|tx| tx.active_runs(&ActiveQuery::new(at(0), at(4)))).unwrap();
        assert_eq!(runs.iter().map(|run| run.start).collect::<Vec<_>>(), [at(1)], "one run, opened once");
        assert!(!starts(&store, 4, LeaseRef::new(lease.id, lease.epoch + 1)));
        end(&store, 5, Finish::success(lease));
        assert!(!starts(&store, 6, lease), "it has ended");
    }
}

#[test]
fn a_finish_may_be_repeated_and_says_what_is_stored() {
    for store in stores() {
        for (nth, name) in ["value", "success", "failed", "skipped", "given back"].into_iter().enumerate() {
            let lease = granted(&store, name);
            assert!(starts(&store, 1, lease));
            let saying = sayings(lease)[nth].clone();
            assert!(!matches!(end(&store, 2, saying), Finished::Stale | Finished::Already(_)));
            let before = task(&store, name);
            for (other, saying) in sayings(lease).into_iter().enumerate() {
                let answer = end(&store, 3, saying);
                let expected = if other == nth { Finished::Already(before.state) } else { Finished::Stale };
                assert_eq!(answer, expected, "{name}, then number {other}");
            }
            assert_eq!(task(&store, name), before, "a repeated finish changes nothing");
            let ends = [Mark::new(key(name), TaskState::Skipped, "over")];
            store.write(|tx| tx.mark(at(4), &ends)).unwrap();
        }
        assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    }
}

#[test]
fn a_retry_that_became_due_is_still_reported_until_it_is_granted() {
    for store in stores() {
        let lease = granted(&store, "t");
        let failed = || Finish::failed(lease, "no");
        assert_eq!(end(&store, 1, failed()), Finished::RetryAt(at(2)));
        assert_eq!(end(&store, 1, failed()), Finished::Already(TaskState::UpForRetry));
        let order =
            AdmitRequest::new("h".try_into().unwrap(), "none".try_into().unwrap(), 0, Duration::from_secs(1));
        store.write(|tx| tx.admit(at(2), &order)).unwrap();
        assert_eq!(end(&store, 2, failed()), Finished::Already(TaskState::Scheduled));
        assert_eq!(end(&store, 2, Finish::given_back(lease)), Finished::Stale);
        grant(&store, 3);
        assert_eq!(end(&store, 3, failed()), Finished::Stale, "it is another's now");
    }
}

/// Ends a lease, or what came of it.
type ByAnother = fn(&Arc<dyn Store>, LeaseRef);

#[test]
fn what_ended_otherwise_is_stale_whatever_the_holder_says() {
    let ends: [(&str, ByAnother); 5] = [
        ("reaped", |store, _| {
            let reaped = store.write(|tx| tx.reap(at(60), 9)).unwrap();
            assert_eq!(reaped[0].became, Finished::Ready);
        }),
        ("marked", |store, _| {
            let ends = [Mark::new(key("t"), TaskState::Success, "by hand")];
            store.write(|tx| tx.mark(at(2), &ends)).unwrap();
        }),
        ("marked as failed", |store, _| {
            let ends = [Mark::new(key("t"), TaskState::Failed, "no")];
            store.write(|tx| tx.mark(at(2), &ends)).unwrap();
        }),
        ("finished and cleared", |store, lease| {
            end(store, 2, Finish::success(lease));
            store.write(|tx| tx.clear(at(3), &[key("t")])).unwrap();
        }),
        ("landed", |store, lease| {
            let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap();
            let context = PokeContext::from_json("{}").unwrap();
            let sensor = NewSensor::new(lease, "file".try_into().unwrap(), context, settings);
            let landed = Ending::new(EndReason::Landed, TaskState::Success);
            let ended = store.write(|tx| {
                tx.register(at(2), std::slice::from_ref(&sensor))?;
                tx.end_sensors(at(3), &[(lease, landed.clone())])
            });
            assert_eq!(ended.unwrap(), [true]);
        }),
    ];
    for (how, by_another) in ends {
        for store in stores() {
            let lease = granted(&store, "t");
            assert!(starts(&store, 1, lease));
            by_another(&store, lease);
            for saying in sayings(lease) {
                assert_eq!(end(&store, 61, saying.clone()), Finished::Stale, "{how}: {saying:?}");
            }
            assert!(!starts(&store, 61, lease), "{how}");
        }
    }
}

#[test]
fn of_two_finishes_of_one_lease_in_one_call_the_first_counts() {
    for store in stores() {
        let lease = granted(&store, "t");
        let [value, success, ..] = sayings(lease);
        let answers =
            store.write(|tx| tx.finish(at(1), &[value.clone(), success.clone(), value.clone()])).unwrap();
        let ended = TaskState::Success;
        assert_eq!(answers, [Finished::Ended(ended), Finished::Stale, Finished::Already(ended)]);
        assert_eq!(task(&store, "t").value.as_deref(), Some("x"));
        // In the host's own transaction, what was written beside the first must not be written twice.
        let again = store.write(|tx| tx.finish(at(2), std::slice::from_ref(&value))?.fenced());
        assert!(matches!(again, Err(Error::Repeated { of: 1, .. })), "{again:?}");
        let other = store.write(|tx| tx.finish(at(2), std::slice::from_ref(&success))?.fenced());
        assert!(matches!(other, Err(Error::Stale { of: 1, .. })), "{other:?}");
    }
}

#[cfg(feature = "testing")]
#[test]
fn after_a_commit_of_unknown_end_the_second_call_settles_it() {
    use stationmaster::error::StoreErrorKind;
    use stationmaster::testing::{Fault, FaultStore, When};
    for kind in stores::kinds() {
        let store = kind.shared();
        let lease = granted(&store, "t");
        let faulty = FaultStore::new(store.clone());
        let lost = |at_call: u64, body: &dyn Fn() -> Result<(), Error>| {
            faulty.arm(Fault::new(at_call, When::After, StoreErrorKind::Io));
            let error = body().unwrap_err();
            assert!(error.is_indeterminate(), "{error:?}");
            assert!(faulty.disarm().unwrap().is_committed());
        };
        // begin, start_if_queued, tasks_by_id, put_runs, commit
        lost(5, &|| faulty.write(|tx| tx.start(at(1), &[lease])).map(drop));
        assert_eq!(faulty.write(|tx| tx.start(at(2), &[lease])).unwrap(), [true]);
        // begin, end_if_leased, tasks_by_id, move_if, close_runs_if_open, commit. PostgreSQL needs no move. It first
        // defers the end until the commit, which refuses it because the task has a run.
        let last = if kind.name == "postgres" { 3 + 5 } else { 6 };
        let ends = [Finish::success_with(lease, "x")];
        lost(last, &|| faulty.write(|tx| tx.finish(at(3), &ends)).map(drop));
        let again = faulty.write(|tx| tx.finish(at(4), &ends)).unwrap();
        assert_eq!(again, [Finished::Already(TaskState::Success)]);
    }
}

#[test]
fn a_task_whose_worker_was_killed_runs_again_by_default_and_one_that_failed_does_not() {
    for store in stores() {
        let enqueued =
            [NewTask::new(key("killed")), NewTask::new(key("never again")).lease_loss(LeaseLoss::Fail)];
        store.write(|tx| tx.enqueue(at(0), &enqueued[..1])).unwrap();
        for loss in 0..3 {
            grant(&store, loss * 20);
            let reaped = store.write(|tx| tx.reap(at(loss * 20 + 10), 9)).unwrap();
            assert_eq!(reaped[0].became, Finished::Ready, "loss {loss}");
        }
        grant(&store, 60);
        let reaped = store.write(|tx| tx.reap(at(70), 9)).unwrap();
        assert_eq!(
            reaped[0].became,
            Finished::Ended(TaskState::Failed),
            "one that kills its workers is stopped"
        );
        store.write(|tx| tx.enqueue(at(80), &enqueued[1..])).unwrap();
        grant(&store, 80);
        let reaped = store.write(|tx| tx.reap(at(90), 9)).unwrap();
        assert_eq!(reaped[0].became, Finished::Ended(TaskState::Failed));
        store.write(|tx| tx.enqueue(at(100), &[NewTask::new(key("failed"))])).unwrap();
        let lease = grant(&store, 100);
        assert_eq!(end(&store, 101, Finish::failed(lease, "no")), Finished::Ended(TaskState::Failed));
    }
}
