//! Sensors that wait as long as an attempt may.

use super::*;
use stationmaster::backoff::RetryPolicy;
use stationmaster::sensor::OnMissed;
use stationmaster::task::Feed;

/// Registers a sensor of one attempt of a task, and waits until its execution timeout has passed.
fn wait_in_vain(store: &Arc<dyn Store>, now: i64, settings: Settings) {
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let lease = admitter.tick(at(now)).unwrap().granted[0].lease_ref();
    let context = PokeContext::from_json(r#"{"target":"t"}"#).unwrap();
    let sensor = NewSensor::new(lease, "kind".try_into().unwrap(), context, settings);
    store
        .write(|tx| {
            tx.start(at(now), &[lease])?;
            tx.register(at(now), std::slice::from_ref(&sensor))
        })
        .unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let mut poker = poker(store, "p", &asked, PokeOutcome::NotYet);
    assert_eq!(poker.tick(at(now)).unwrap().timed_out, 0);
    assert_eq!(poker.tick(at(now + 59)).unwrap().timed_out, 0, "not before its time");
    asked.store(0, Ordering::SeqCst);
    assert_eq!(poker.tick(at(now + 60)).unwrap().timed_out, 1);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is looked at once more");
    poker.leave().unwrap();
}

fn task(retry: RetryPolicy) -> NewTask {
    NewTask::new(TaskKey::new("ns", "w", "r", "t").unwrap()).retry(retry).feed(Feed::EndsAndSensors)
}

fn settings() -> Settings {
    waits(30, 3_600).execution_timeout(secs(60)).unwrap()
}

/// How the sensors ended: why, into which state, and with which message.
fn ends(store: &Arc<dyn Store>) -> Vec<(EndReason, TaskState, String)> {
    let ends = told(store).into_iter();
    ends.map(|event| (event.reason.unwrap(), event.state, event.message.unwrap_or_default())).collect()
}

const MESSAGE: &str = "sensor attempt timed out after 60.000 s";

#[test]
fn an_execution_timeout_is_retried_while_retries_are_left_and_fails_after_the_last() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(100)).max_attempts(2).build().unwrap();
        store.write(|tx| tx.enqueue(at(0), &[task(retry.clone())])).unwrap();
        let retried = (EndReason::ExecutionTimedOut, TaskState::UpForRetry, MESSAGE.to_owned());
        let message = format!("{MESSAGE} (attempt 2 of 2 failed)");
        let failed = (EndReason::ExecutionTimedOut, TaskState::Failed, message);

        wait_in_vain(&store, 0, settings());
        assert_eq!(state(&store, "t"), TaskState::UpForRetry);
        assert_eq!(ends(&store), std::slice::from_ref(&retried));

        // The next attempt waits as long again.
        wait_in_vain(&store, 160, settings());
        assert_eq!(state(&store, "t"), TaskState::Failed);
        assert_eq!(ends(&store), [retried, failed]);
    }
}

#[test]
fn an_execution_timeout_without_retries_fails_the_task() {
    for store in stores() {
        store.write(|tx| tx.enqueue(at(0), &[task(RetryPolicy::none())])).unwrap();
        wait_in_vain(&store, 0, settings());
        assert_eq!(state(&store, "t"), TaskState::Failed);
        let message = format!("{MESSAGE} (attempt 1 failed and the policy has no retries)");
        assert_eq!(ends(&store), [(EndReason::ExecutionTimedOut, TaskState::Failed, message)]);
    }
}

#[test]
fn an_execution_timeout_of_a_soft_fail_skips_the_task_although_retries_are_left() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(100)).max_attempts(5).build().unwrap();
        store.write(|tx| tx.enqueue(at(0), &[task(retry.clone())])).unwrap();
        wait_in_vain(&store, 0, settings().on_missed(OnMissed::Skip));
        assert_eq!(state(&store, "t"), TaskState::Skipped);
        assert_eq!(ends(&store), [(EndReason::ExecutionTimedOut, TaskState::Skipped, MESSAGE.to_owned())]);
    }
}

/// The whole timeout is no timeout of an attempt: it is not retried.
#[test]
fn a_timeout_that_is_not_longer_than_the_execution_timeout_is_not_retried() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(100)).max_attempts(5).build().unwrap();
        store.write(|tx| tx.enqueue(at(0), &[task(retry.clone())])).unwrap();
        wait_in_vain(&store, 0, waits(30, 60).execution_timeout(secs(60)).unwrap());
        assert_eq!(state(&store, "t"), TaskState::Failed);
        assert_eq!(ends(&store)[0].0, EndReason::TimedOut);
    }
}
