//! `cancel` is `mark` for tasks that no one holds.

use std::collections::BTreeSet;
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::ops::{Finish, Mark};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};

use crate::world::{NOW, Value, Why, World, databases, key, now, values};

pub fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(600)).unwrap();
    let context = PokeContext::from_json(r#"{"path":"/x"}"#).unwrap();
    NewSensor::new(lease, "file".try_into().unwrap(), context, settings)
}

/// One task in each state that a cancel may find, and one more of the last lane.
const TASKS: [&str; 9] =
    ["ready", "later", "retried", "failed", "sensing", "keeps", "queued", "running", "beside"];

fn keys() -> Vec<TaskKey> {
    TASKS.map(key).into()
}

/// Leases of tasks, by name.
fn leases(granted: &[TaskRecord], names: &[&str]) -> Vec<LeaseRef> {
    let named = granted.iter().filter(|task| names.contains(&task.key.task.as_str()));
    named.map(TaskRecord::lease_ref).collect()
}

fn fill(world: &World) {
    let retry = RetryPolicy::fixed(Duration::from_secs(60)).build().unwrap();
    let task = |name: &&str| {
        let task = NewTask::new(key(name)).pool("db".try_into().unwrap()).limit("a".try_into().unwrap());
        match *name {
            "ready" => task.pool("nowhere".try_into().unwrap()),
            "later" => task.not_before(Timestamp::from_micros(NOW + 900)).limit("b".try_into().unwrap()),
            "retried" => task.retry(retry.clone()),
            "keeps" => {
                task.pool("keeps".try_into().unwrap()).pool_slots(4).limit("tenant".try_into().unwrap())
            }
            "beside" => task.pool("nowhere".try_into().unwrap()),
            _ => task,
        }
    };
    let tasks: Vec<NewTask> = TASKS.iter().map(task).collect();
    world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
    let granted = world.admit(NOW);
    let at = Timestamp::from_micros(NOW + 5);
    let begun = leases(&granted, &["retried", "failed", "sensing", "keeps", "running"]);
    let failed: Vec<Finish> = leases(&granted, &["retried", "failed"])
        .into_iter()
        .map(|lease| Finish::failed(lease, "no route"))
        .collect();
    let sensors: Vec<NewSensor> = leases(&granted, &["sensing", "keeps"]).into_iter().map(sensor).collect();
    world
        .store
        .write(|tx| {
            tx.start(at, &begun)?;
            tx.finish(at, &failed)?;
            tx.register(at, &sensors)
        })
        .unwrap();
}

#[test]
fn a_cancel_is_a_mark() {
    for make in databases() {
        let (ours, sql) = (make(), make());
        fill(&ours);
        fill(&sql);
        assert_eq!(sql.state(&keys()), ours.state(&keys()));
        let mut seen = BTreeSet::new();
        let cancels = ["ready", "later", "retried", "sensing", "keeps", "beside"];
        let outcomes = [TaskState::Skipped, TaskState::Failed, TaskState::Success];
        for (at, name) in cancels.into_iter().enumerate() {
            let (to, id) = (outcomes[at % 3], sql.id(&key(name)));
            let state = sql.ask("status_by_id", &values![id]).unwrap()[0][2].clone();
            seen.insert(state.text().to_owned());
            // Some are cancelled by a clock that is behind.
            let when = NOW + 2_000 * (at as i64 % 2);
            let mark = Mark::new(key(name), to, "not needed\u{1a}0");
            ours.store
                .write(|tx| tx.mark(Timestamp::from_micros(when), std::slice::from_ref(&mark)))
                .unwrap();
            sql.cancel(id, when, to.as_str(), &mark.message).unwrap();
            assert_eq!(sql.state(&keys()), ours.state(&keys()), "{name}");
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["scheduled", "sensing", "up_for_retry"]);
        let events = sql.store.read(|tx| tx.events(0, 9)).unwrap();
        assert_eq!(events.len(), 2);
        assert!(events.iter().all(|event| event.ending.reason == EndReason::Cancelled));
        // What was given back is given again, and the counters are folded alike.
        assert_eq!(sql.admit(NOW + 9_000_000), ours.admit(NOW + 9_000_000));
        assert_eq!(sql.state(&keys()), ours.state(&keys()));
    }
}

#[test]
fn what_cannot_be_cancelled_is_told_why() {
    for make in databases() {
        let world = make();
        fill(&world);
        let id = |name: &str| world.id(&key(name));
        let refused = |id: i64, outcome: &str, message: &str| {
            world.cancel(id, NOW, outcome, message).unwrap_err().why()
        };
        world.cancel(id("ready"), NOW, "skipped", "no").unwrap();
        let before = world.state(&keys());
        for held in ["queued", "running"] {
            assert_eq!(refused(id(held), "skipped", "no"), Why::State);
        }
        assert_eq!(refused(99, "skipped", "no"), Why::Unknown);
        assert_eq!(refused(id("ready"), "skipped", "no"), Why::Repeated);
        for (outcome, message) in [("skipped", "nope"), ("failed", "no")] {
            assert_eq!(refused(id("ready"), outcome, message), Why::State, "{outcome} {message}");
        }
        // It ended in this state, with this message; but its holder ended it.
        let finished = world.store.read(|tx| tx.tasks(&[key("failed")])).unwrap().remove(0).unwrap();
        assert_eq!(finished.state, TaskState::Failed);
        assert_eq!(refused(finished.id.0, "failed", &finished.message.unwrap()), Why::State);
        for (outcome, message) in [("given_back", "no"), ("Skipped", "no")] {
            assert_eq!(refused(id("later"), outcome, message), Why::Argument, "{outcome}");
        }
        let long = "x".repeat((1 << 20) + 1);
        assert_eq!(refused(id("later"), "skipped", &long), Why::Argument);
        for (at, message) in [
            (Value::from(i64::MAX), Value::from("no")),
            (NOW.into(), Value::Null),
            (Value::Null, "no".into()),
        ] {
            let refused = world.run("cancel", &[at, id("later").into(), "skipped".into(), message]);
            assert_eq!(refused.unwrap_err().why(), Why::Argument);
        }
        assert_eq!(world.state(&keys()), before);
    }
}

/// As the page says: of a run all that waits.
#[test]
fn a_run_is_cancelled_in_one_statement() {
    for make in databases() {
        let world = make();
        fill(&world);
        let cancel = if world.is_sqlite() {
            "INSERT INTO sm_cancel (at, id, outcome, message)
             SELECT ?1, id, 'skipped', 'the run was cancelled' FROM sm_status
             WHERE namespace = 'prod' AND workflow = 'nightly' AND run = 'r1'
                 AND state IN ('scheduled', 'up_for_retry', 'sensing')"
        } else {
            "SELECT stationmaster.cancel($1, id, 'skipped', 'the run was cancelled') FROM stationmaster.status
             WHERE namespace = 'prod' AND workflow = 'nightly' AND run = 'r1'
                 AND state IN ('scheduled', 'up_for_retry', 'sensing')"
        };
        world.host.ask(cancel, &values![NOW + 50]).unwrap();
        let (seen, _) = world.state(&keys());
        let cancelled = seen.tasks().iter().flatten().filter(|task| task.state == TaskState::Skipped);
        assert_eq!(cancelled.count(), 6);
    }
}
