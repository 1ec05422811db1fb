//! The history of attempts through the verbs, on every store.
#![allow(clippy::unwrap_used)]

mod stores;

use std::sync::Arc;
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::ops::{AdmitRequest, Finish, Finished, Mark};
use stationmaster::store::Store;
use stationmaster::task::{KeptAttempts, LeaseLoss};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::stores;

type Shared = Arc<dyn Store>;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// Admits all that is ready with leases of ten seconds, and starts it.
fn run(store: &Shared, now: i64) -> Vec<LeaseRef> {
    let tick = format!("tick {now}").try_into().unwrap();
    let order =
        AdmitRequest::new("worker-1".try_into().unwrap(), tick, 99, Duration::from_secs(10)).started();
    let granted = store.write(|tx| tx.admit(at(now), &order)).unwrap().granted;
    granted.iter().map(TaskRecord::lease_ref).collect()
}

/// What is kept of a task: attempt, start, end, what it became, whether its holder said so, message.
type Kept = (u32, i64, i64, TaskState, bool, Option<String>);

fn kept(store: &Shared, task: &str) -> Vec<Kept> {
    let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
    let past = store.read(|tx| tx.attempts(&[key("unknown"), key(task)])).unwrap();
    assert_eq!((past.len(), past[0].len()), (2, 0));
    assert!(past[1].iter().all(|past| past.queue.as_str() == "default"));
    let row = |past: &stationmaster::task::PastAttempt| {
        let (start, end) = (seconds(past.started_at.unwrap()), seconds(past.ended_at));
        assert_eq!(past.holder.as_ref().unwrap().as_str(), "worker-1");
        (past.attempt, start, end, past.became, past.by_holder, past.message.clone())
    };
    past[1].iter().map(row).collect()
}

#[test]
fn each_attempt_that_did_not_succeed_tells_why() {
    for store in stores() {
        let retry = RetryPolicy::fixed(Duration::from_secs(5)).max_attempts(9).build().unwrap();
        let task = NewTask::new(key("a")).retry(retry).lease_loss(LeaseLoss::Requeue { at_most: 1 });
        store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task))).unwrap();
        let lease = run(&store, 0)[0];
        store.write(|tx| tx.finish(at(2), &[Finish::failed(lease, "no route")])).unwrap();
        let lease = run(&store, 7)[0];
        store.write(|tx| tx.finish(at(8), &[Finish::given_back(lease)])).unwrap();
        run(&store, 9);
        assert_eq!(store.write(|tx| tx.reap(at(30), 9)).unwrap().len(), 1);
        let lease = run(&store, 31)[0];
        store.write(|tx| tx.cancel(at(32), Duration::from_secs(60), &[key("a")], "by hand")).unwrap();
        store.write(|tx| tx.finish(at(33), &[Finish::failed(lease, "told to stop")])).unwrap();
        store.write(|tx| tx.clear(at(40), &[key("a")])).unwrap();
        run(&store, 41);
        store.write(|tx| tx.mark(at(42), &[Mark::new(key("a"), TaskState::Failed, "enough")])).unwrap();
        store.write(|tx| tx.clear(at(43), &[key("a")])).unwrap();
        let lease = run(&store, 44)[0];
        store.write(|tx| tx.finish(at(45), &[Finish::success(lease)])).unwrap();
        let told = |text: &str| Some(text.to_owned());
        let lost = told("lease lost: worker-1 did not renew it in time");
        let expected = [
            (1, 0, 2, TaskState::UpForRetry, true, told("no route")),
            (2, 7, 8, TaskState::Scheduled, true, None),
            (3, 9, 30, TaskState::Scheduled, false, lost),
            (4, 31, 33, TaskState::Cancelled, true, told("by hand")),
            (5, 41, 42, TaskState::Failed, false, told("enough")),
        ];
        assert_eq!(kept(&store, "a"), expected);
        store.write(|tx| tx.delete(&[key("a")])).unwrap();
        assert_eq!(kept(&store, "a"), []);
        store.write(|tx| tx.enqueue(at(50), std::slice::from_ref(&task))).unwrap();
        assert_eq!(kept(&store, "a"), [], "another task of that key");
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}

/// Only a write deletes older rows, so rows may exist for longer than they are returned.
#[test]
fn what_is_older_than_sixteen_grants_is_not_reported_though_all_later_ones_succeeded() {
    for store in stores() {
        store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key("a"))])).unwrap();
        let lease = run(&store, 0)[0];
        store.write(|tx| tx.finish(at(0), &[Finish::failed(lease, "once")])).unwrap();
        for grants in 2..=17 {
            assert_eq!(kept(&store, "a").len(), 1, "of the latest {} grants", grants - 1);
            store.write(|tx| tx.clear(at(grants), &[key("a")])).unwrap();
            let lease = run(&store, grants)[0];
            assert_eq!(kept(&store, "a").len(), usize::from(grants < 17), "a grant counts before it ends");
            store.write(|tx| tx.finish(at(grants), &[Finish::success(lease)])).unwrap();
        }
        assert_eq!(kept(&store, "a"), []);
    }
}

#[test]
fn a_task_may_keep_all_of_its_attempts_or_none() {
    for store in stores() {
        let choices =
            [("none", KeptAttempts::None), ("failures", KeptAttempts::Failures), ("all", KeptAttempts::All)];
        let tasks = choices.map(|(name, history)| NewTask::new(key(name)).keep_attempts(history));
        store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
        let rows = |store: &Shared| choices.map(|(name, _)| kept(store, name).len());
        let ends = |now, end: fn(LeaseRef) -> Finish| {
            let ends: Vec<Finish> = run(&store, now).into_iter().map(end).collect();
            assert_eq!(ends.len(), 3);
            // All in one call, and the same call once more.
            let done = store.write(|tx| tx.finish(at(now + 1), &ends)).unwrap();
            let again = store.write(|tx| tx.finish(at(now + 2), &ends)).unwrap();
            assert!(again.iter().all(|finished| matches!(finished, Finished::Already(_))), "{again:?}");
            store.write(|tx| tx.clear(at(now + 3), &choices.map(|(name, _)| key(name)))).unwrap();
            done
        };
        assert_eq!(ends(0, Finish::success), [Finished::Ended(TaskState::Success); 3]);
        assert_eq!(rows(&store), [0, 0, 1]);
        assert_eq!(
            ends(10, |lease| Finish::failed(lease, "no route")),
            [Finished::Ended(TaskState::Failed); 3]
        );
        assert_eq!(rows(&store), [0, 1, 2]);
        // What is changed holds for the attempts that end from then on, each by a call of its own.
        let no_more = |new: &mut NewTask| new.keep_attempts = KeptAttempts::Failures;
        store.write(|tx| tx.change(at(20), &[key("all")], no_more)).unwrap();
        let from_now_on = |new: &mut NewTask| new.keep_attempts = KeptAttempts::All;
        store.write(|tx| tx.change(at(20), &[key("none")], from_now_on)).unwrap();
        for lease in run(&store, 21) {
            let done = store.write(|tx| tx.finish(at(22), &[Finish::skipped(lease, "not today")])).unwrap();
            assert_eq!(done, [Finished::Ended(TaskState::Skipped)]);
        }
        assert_eq!(rows(&store), [1, 1, 2]);
        let skipped = (3, 21, 22, TaskState::Skipped, true, Some("not today".into()));
        assert_eq!(kept(&store, "none"), [skipped]);
        assert_eq!(kept(&store, "all")[0], (1, 0, 1, TaskState::Success, true, None));
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}
