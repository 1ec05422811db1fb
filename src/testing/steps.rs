//! The life of a few tasks, sensors and runs, in steps: every operation that writes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::num::NonZeroU32;
use std::time::Duration;

use super::Watch;
use crate::admission::limits::LimitSpec;
use crate::admission::{IfExists, QueueSpec, Subject, WaitingCap};
use crate::backoff::RetryPolicy;
use crate::canonical::PokeContext;
use crate::error::Result;
use crate::feed::Consumer;
use crate::fingerprint::Fingerprint;
use crate::id::TaskKey;
use crate::lease::LeaseRef;
use crate::ops::StopBeforeStart;
use crate::ops::{AdmitRequest, Changed, Finish, Mark};
use crate::pool::{PoolSpec, Slots};
use crate::run::{RunBeat, RunClose, RunKey, RunRecord, RunStatus};
use crate::sensor::{EndReason, Ending, NewSensor, PokeCounts, Settings, SmartSensorConfig};
use crate::shard::DEFAULT_CODES;
use crate::store::contract::{
    OutageRow, PokeCountRow, PokerRow, ShardLease, ShardTake, ShardWrite, SurveyQuery,
};
use crate::store::{Inserted, Tx};
use crate::task::{Feed, LeaseLoss, NewTask, TaskQuery, TaskRecord, TaskState};
use crate::time::Timestamp;

/// One operation, to be run in a transaction that writes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Step {
    /// What it does.
    pub name: &'static str,
    /// Does it. Fails only if the store does; panics if the store returns what it should not.
    pub run: fn(&mut Tx<'_>) -> Result<()>,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

const TASKS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "later", "recorded"];

/// Returns the names that the steps of [`life`] use.
pub fn watch() -> Watch {
    Watch {
        tasks: TASKS.iter().map(|name| key(name)).collect(),
        limits: ["tenant", "key", "gone"].map(|key| key.try_into().unwrap()).into(),
        requests: ["t1", "t2", "t3"].map(|id| id.try_into().unwrap()).into(),
    }
}

fn tasks() -> Vec<NewTask> {
    let retry = RetryPolicy::fixed(Duration::from_secs(5)).max_attempts(9).build().unwrap();
    let task = |name: &str| {
        let task = NewTask::new(key(name)).pool("p".try_into().unwrap()).limit("tenant".try_into().unwrap());
        match name {
            "later" => task.not_before(at(5)),
            "recorded" => task.attempts_as_runs(true),
            "f" => task.feed(Feed::Ends),
            "c" => task.retry(retry.clone()).lease_loss(LeaseLoss::Fail),
            "h" => task.lease_loss(LeaseLoss::Requeue { at_most: 3 }).limit("key".try_into().unwrap()),
            _ => task,
        }
    };
    TASKS.iter().map(|name| task(name)).collect()
}

fn record(tx: &mut Tx<'_>, name: &str) -> Result<TaskRecord> {
    let mut found = tx.tasks(&[key(name)])?;
    Ok(found.remove(0).expect("the task is there"))
}

/// Returns the leases of those of the tasks that have one.
fn leases(tx: &mut Tx<'_>, names: &[&str]) -> Result<Vec<LeaseRef>> {
    let leased = names.iter().map(|name| record(tx, name)).collect::<Result<Vec<_>>>()?;
    Ok(leased.into_iter().map(|task| task.lease_ref()).collect())
}

fn order(tick: &str) -> AdmitRequest {
    AdmitRequest::new("worker".try_into().unwrap(), tick.try_into().unwrap(), 99, Duration::from_secs(30))
}

fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(100)).unwrap();
    NewSensor::new(
        lease,
        "file".try_into().unwrap(),
        PokeContext::from_json(r#"{"path": "/x"}"#).unwrap(),
        settings,
    )
}

fn run(id: &str) -> RunRecord {
    RunRecord::open(RunKey::new("ns", id).unwrap(), at(1))
}

macro_rules! steps {
    ($($name:literal: |$tx:ident| $body:expr;)+) => {
        vec![$(Step { name: $name, run: |$tx| { $body; Ok(()) } }),+]
    };
}

/// Returns every verb of [`Tx`] that writes, and every other writing method of the contract, in an order in
/// which each finds what it needs. Begins on an empty store; each writes something.
///
/// # Examples
///
/// ```
/// use stationmaster::store::MemoryStore;
/// let store = MemoryStore::new();
/// for step in stationmaster::testing::life() {
///     store.write(|tx| (step.run)(tx))?;
/// }
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn life() -> Vec<Step> {
    steps! {
        "define pools": |tx| {
            let pools = [PoolSpec::new("p", Slots::Limited(9)).unwrap(), PoolSpec::new("q", Slots::Unlimited).unwrap()];
            tx.define(&pools, IfExists::Replace)?
        };
        "define limits": |tx| tx.define([LimitSpec::new("tenant".try_into()?, 50).unwrap(), LimitSpec::new("gone".try_into()?, 1)?], IfExists::Replace)?;
        "enqueue": |tx| tx.enqueue(at(0), &tasks())?;
        "admit": |tx| assert!(tx.admit(at(1), &order("t1"))?.granted.len() == 9);
        "start": |tx| {
            let leases = leases(tx, &TASKS)?;
            tx.start(at(2), &leases)?
        };
        "renew": |tx| {
            let leases = leases(tx, &["a", "b"])?;
            tx.renew(at(3), Duration::from_secs(60), &leases)?
        };
        "note": |tx| {
            let notes: Vec<_> =
                leases(tx, &["a", "b"])?.into_iter().map(|lease| (lease, "half".to_owned())).collect();
            tx.note(at(3), &notes)?
        };
        "register": |tx| {
            let sensors: Vec<_> = leases(tx, &["a", "b"])?.into_iter().map(sensor).collect();
            tx.register(at(4), &sensors)?
        };
        "register_with": |tx| {
            let sensors: Vec<_> = leases(tx, &["d", "recorded"])?.into_iter().map(sensor).collect();
            tx.register_with(at(4), &SmartSensorConfig::default(), &sensors)?
        };
        "end_sensors": |tx| {
            let leases = leases(tx, &["a", "b", "d", "recorded"])?;
            let (landed, failed) = (EndReason::Landed, EndReason::Failed);
            let ends = [
                (leases[0], Ending::new(landed, TaskState::Success)),
                (leases[1], Ending::new(landed, TaskState::Scheduled)),
                (leases[3], Ending::new(failed, TaskState::Failed)),
            ];
            tx.end_sensors(at(5), &ends)?
        };
        "finish": |tx| {
            let leases = leases(tx, &["c", "e", "f", "g"])?;
            let ends = [
                Finish::failed(leases[0], "no route"),
                Finish::success_with(leases[1], "7 rows"),
                Finish::skipped(leases[2], "not needed"),
                Finish::given_back(leases[3]),
            ];
            tx.finish(at(6), &ends)?
        };
        "admit what came due": |tx| assert!(tx.admit(at(12), &order("t2"))?.granted.len() == 4);
        "put_consumer": |tx| tx.raw().put_consumer(&consumer())?;
        "forget_feed": |tx| {
            tx.raw().number_changes(99)?;
            assert_eq!(tx.raw().forget_feed(1, at(0), 9)?, 1);
        };
        "delete_consumers": |tx| assert_eq!(tx.delete_consumers(&[consumer().name])?, [true]);
        "mark": |tx| {
            let [sensing, leased] = ["d", "g"].map(|name| Mark::new(key(name), TaskState::Skipped, "by hand"));
            tx.mark(at(13), &[sensing, leased])?
        };
        "clear": |tx| tx.clear(at(14), &[key("e"), key("recorded")])?;
        "change": |tx| {
            let changed = tx.change(at(14), &[key("e")], |task| task.queue = "fast".try_into().unwrap())?;
            assert_eq!(changed, [Changed::Done]);
        };
        "cancel": |tx| {
            let [ready, leased] = ["recorded", "later"].map(key);
            tx.cancel(at(15), Duration::from_secs(10), &[ready, leased], "by hand")?
        };
        "reap": |tx| assert!(!tx.reap(at(100), 99)?.is_empty());
        "survey": |tx| assert!(tx.raw().survey(&SurveyQuery::new().promote(at(200), 9))?.promoted > 0);
        "record": |tx| tx.record_runs(&[run("r1"), run("r2"), run("r3").heartbeat(at(2))], StopBeforeStart::Reject)?;
        "beat": |tx| tx.beat_runs(&[RunBeat::new(run("r1").key, at(3))])?;
        "stop": |tx| tx.stop_runs(&[RunClose::new(run("r2").key, at(9), RunStatus::Completed)], StopBeforeStart::Reject)?;
        "close_silent": |tx| tx.close_silent_runs(at(90), Duration::from_secs(10), RunStatus::Killed, 9)?;
        "put_worker": |tx| tx.raw().put_worker(&worker())?;
        "put_shards": |tx| {
            let lease = ShardLease::new(1, Some("worker".try_into()?), 1, at(50));
            tx.raw().put_shards_if_unchanged(&[ShardWrite::new(0, lease)])?
        };
        "put_shard_takes": |tx| {
            let lease = ShardLease::new(1, None, 1, at(50));
            tx.raw().put_shard_takes(&[ShardTake::new(&lease, &worker(), at(20))], at(0))?
        };
        "put_outages": |tx| {
            let outage = OutageRow { fingerprint: Fingerprint(7), since: at(20), until: None };
            tx.raw().put_outages(&[outage], at(0))?
        };
        "put_poke_counts": |tx| {
            let counts = PokeCounts::new(at(0), "file".try_into()?, 3, 4, Duration::from_millis(5));
            tx.raw().put_poke_counts(&[PokeCountRow::new("worker".try_into()?, 1, counts)], at(0))?
        };
        "delete_worker": |tx| tx.raw().delete_worker(&"worker".try_into()?)?;
        "put_worker again": |tx| tx.raw().put_worker(&worker())?;
        "forget_workers": |tx| tx.raw().forget_workers(at(60), 9)?;
        "forget_requests": |tx| assert!(!tx.admit(at(210), &order("t3").remember(Duration::from_secs(205)))?.granted.is_empty());
        "delete": |tx| {
            assert!(tx.hold_tasks(&TaskQuery::ended())?.keys().contains(&key("f")));
            assert_eq!(tx.delete(&[key("f")])?, [Changed::Done]);
        };
        "forget_ended": |tx| assert!(tx.forget_ended(at(400), Duration::from_secs(100), 99)? > 0);
        "delete_runs": |tx| tx.delete_runs(&[run("r1").key])?;
        "forget_stopped_runs": |tx| tx.forget_stopped_runs(at(300), 99)?;
        "pause": |tx| tx.pause(&[Subject::Pool("p".try_into()?), Subject::Queue("default".try_into()?)])?;
        "resume": |tx| tx.resume(&[Subject::Pool("p".try_into()?), Subject::Key("gone".try_into()?)])?;
        "define caps": |tx| {
            let queue = QueueSpec::new("capped".try_into()?, WaitingCap::new(1)?.strict(true));
            tx.define([queue], IfExists::Replace)?;
            tx.define([LimitSpec::of("key".try_into()?).waiting(WaitingCap::new(9)?)], IfExists::Replace)?
        };
        "enqueue under a cap": |tx| {
            // Seen by its instant: where numbers come from a sequence, one that was undone leaves a gap.
            let of = |name: &str| NewTask::new(key(name)).queue("capped".try_into().unwrap()).not_before(at(5_000));
            let inserted = tx.enqueue(at(500), &[of("capped").limit("key".try_into()?), of("refused")])?;
            assert!(matches!(inserted[1], Inserted::Refused { waiting: 1, most: 1, .. }), "{inserted:?}");
        };
        "undefine": |tx| tx.undefine(&[Subject::Key("tenant".try_into()?), Subject::Key("gone".try_into()?), Subject::Pool("q".try_into()?), Subject::Family("t/".try_into()?), Subject::Queue("capped".try_into()?)])?;
    }
}

fn consumer() -> Consumer {
    let (name, seen_at, until) = ("consumer".try_into().unwrap(), at(3), at(4));
    Consumer { name, cursor: 1, seen_at, lost: 0, dropped: false, reader: 5, until }
}

fn worker() -> PokerRow {
    PokerRow::new("worker".try_into().unwrap(), DEFAULT_CODES, NonZeroU32::MIN, at(50)).incarnation(5)
}
