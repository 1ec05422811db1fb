//! The instants recorded of one task never run backwards, whatever the clocks of its callers say, on every store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod stores;

use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::ops::{AdmitRequest, Finish, Mark};
use stationmaster::run::RunKey;
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::store::contract::Ending;
use stationmaster::store::{ReadTx, Tx};
use stationmaster::task::Feed;
use stationmaster::task::{LeaseLoss, attempt_run_id};
use stationmaster::{LeaseRef, NewTask, Result, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::{stores, told};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key() -> TaskKey {
    TaskKey::new("ns", "w", "r", "t").unwrap()
}

fn new() -> NewTask {
    let retry = RetryPolicy::fixed(secs(10)).max_attempts(1_000).build().unwrap();
    NewTask::new(key())
        .retry(retry)
        .lease_loss(LeaseLoss::Requeue { at_most: 1_000 })
        .attempts_as_runs(true)
        .feed(Feed::EndsAndSensors)
}

fn task(tx: &mut ReadTx<'_>) -> Result<TaskRecord> {
    tx.tasks(&[key()]).map(|mut found| found.remove(0).unwrap())
}

fn admit_it(tx: &mut Tx<'_>, now: i64, name: &str) -> Result<()> {
    let order = AdmitRequest::new("h".try_into()?, name.try_into()?, 9, secs(30));
    tx.admit(at(now), &order).map(drop)
}

fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(secs(30), secs(3600)).unwrap();
    NewSensor::new(lease, "file".try_into().unwrap(), PokeContext::from_json("{}").unwrap(), settings)
}

#[test]
fn a_caller_whose_clock_is_behind_records_what_the_task_has_already() {
    for store in stores() {
        let look = || store.read(task).unwrap();
        let do_it = |body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>| {
            store.write(|tx| body(tx)).unwrap();
            look()
        };
        let task = do_it(&mut |tx| tx.enqueue(at(50), &[new()]).map(drop));
        assert_eq!((task.enqueued_at, task.ready_at), (at(50), at(50)));
        let task = do_it(&mut |tx| admit_it(tx, 40, "1"));
        assert_eq!(task.queued_at, Some(at(50)));
        assert_eq!(task.lease.as_ref().unwrap().expires_at, at(70), "a lease follows the clock");
        let lease = task.lease_ref();
        let task = do_it(&mut |tx| tx.start(at(55), &[lease]).map(drop));
        assert_eq!(task.started_at, Some(at(55)));

        let task = do_it(&mut |tx| tx.finish(at(30), &[Finish::failed(lease, "no")]).map(drop));
        assert_eq!((task.ended_at, task.due), (Some(at(55)), Some(at(40))), "a retry follows the clock");
        assert_eq!(task.ready_at, at(55), "it was not ready before its attempt ended");
        let run = RunKey::new("ns", attempt_run_id(&key(), task.id, 1)).unwrap();
        let run = store.read(|tx| tx.runs(std::slice::from_ref(&run))).unwrap().remove(0).unwrap();
        assert_eq!((run.start, run.stop), (at(55), Some(at(55))));

        let task = do_it(&mut |tx| admit_it(tx, 41, "2"));
        assert_eq!(task.queued_at, Some(at(55)));
        let lease = task.lease_ref();
        do_it(&mut |tx| {
            tx.start(at(60), &[lease])?;
            tx.register(at(45), &[sensor(lease)]).map(drop)
        });
        let sensor = store.read(|tx| tx.sensors(&[key()])).unwrap().remove(0).unwrap();
        assert_eq!(sensor.registered_at, at(60));
        assert_eq!(sensor.times_out_at, at(45 + 3600), "a timeout follows the clock");
    }
}

type End = fn(&mut Tx<'_>, LeaseRef) -> Result<()>;

#[test]
fn a_sensor_does_not_end_before_it_registered() {
    let ends: [End; 2] = [
        |tx, lease| {
            tx.end_sensors(at(20), &[(lease, Ending::new(EndReason::Landed, TaskState::Success))]).map(drop)
        },
        |tx, _| tx.mark(at(20), &[Mark::new(key(), TaskState::Failed, "enough")]).map(drop),
    ];
    for end in ends {
        for store in stores() {
            store
                .write(|tx| {
                    tx.enqueue(at(0), &[new()])?;
                    admit_it(tx, 1, "1")
                })
                .unwrap();
            store
                .write(|tx| {
                    let lease = task(tx)?.lease_ref();
                    tx.start(at(2), &[lease])?;
                    tx.register(at(30), &[sensor(lease)])?;
                    end(tx, lease)
                })
                .unwrap();
            let (task, event) = (store.read(task).unwrap(), told(&store).remove(0));
            assert_eq!((task.ended_at, event.at), (Some(at(30)), at(30)));
            assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
        }
    }
}

/// What is recorded of a task and has come: while it waits, the instant it waits for has not.
fn recorded(task: &TaskRecord) -> Vec<Option<Timestamp>> {
    let ready_at = Some(task.ready_at).filter(|_| task.due.is_none());
    let TaskRecord { enqueued_at, queued_at, started_at, ended_at, .. } = *task;
    vec![Some(enqueued_at), ready_at, queued_at, started_at, ended_at]
}

/// One step of a task's way, by a caller whose clock shows this.
fn step(tx: &mut Tx<'_>, random: u64, now: i64, name: &str) -> Result<()> {
    let it = task(tx)?;
    let lease = it.lease_ref();
    match (it.state, random % 6) {
        (TaskState::Scheduled | TaskState::UpForRetry, 0) | (TaskState::Running, 5) => {
            tx.mark(at(now), &[Mark::new(key(), TaskState::Skipped, "")]).map(drop)
        }
        (TaskState::Scheduled | TaskState::UpForRetry, _) => admit_it(tx, now, name),
        (TaskState::Queued, 0) => tx.finish(at(now), &[Finish::given_back(lease)]).map(drop),
        (TaskState::Queued, _) => tx.start(at(now), &[lease]).map(drop),
        (TaskState::Running, 0) => tx.finish(at(now), &[Finish::success(lease)]).map(drop),
        (TaskState::Running, 1) => tx.finish(at(now), &[Finish::failed(lease, "")]).map(drop),
        (TaskState::Running, 2) => tx.reap(at(now), 9).map(drop),
        (TaskState::Running, _) => tx.register(at(now), &[sensor(lease)]).map(drop),
        (TaskState::Sensing, 0) => tx.mark(at(now), &[Mark::new(key(), TaskState::Failed, "")]).map(drop),
        (TaskState::Sensing, 1) => {
            tx.end_sensors(at(now), &[(lease, Ending::new(EndReason::Failed, TaskState::Failed))]).map(drop)
        }
        (TaskState::Sensing, _) => {
            let landed = Ending::new(EndReason::Landed, TaskState::Scheduled);
            tx.end_sensors(at(now), &[(lease, landed)]).map(drop)
        }
        _ => tx.clear(at(now), &[key()]).map(drop),
    }
}

#[test]
fn whatever_happens_to_a_task_in_whatever_order_of_clocks() {
    for store in stores() {
        store.write(|tx| tx.enqueue(at(100), &[new()])).unwrap();
        let (mut random, mut changes, mut now) = (7_u64, 0, 100);
        for round in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += 4;
            let clock = now - i64::try_from((random >> 20) % 40).unwrap();
            let (before, after) = store
                .write(|tx| {
                    let before = task(tx)?;
                    step(tx, random >> 40, clock, &format!("tick {round}"))?;
                    Ok((before, task(tx)?))
                })
                .unwrap();
            let latest = recorded(&before).into_iter().max().flatten();
            for (was, is) in recorded(&before).into_iter().zip(recorded(&after)) {
                assert!(is == was || is >= latest || is.is_none(), "{clock}: {before:?} became {after:?}");
                changes += u32::from(is != was);
            }
        }
        assert!(changes > 200, "only {changes} instants were recorded");
        let (task, event) = (store.read(task).unwrap(), told(&store).pop());
        assert!(event.is_some_and(|event| event.at <= task.ended_at.unwrap()));
    }
}
