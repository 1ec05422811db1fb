//! `cancel` is `mark` for tasks that no one holds, and with a deadline it is the crate's `cancel`.

use std::collections::BTreeSet;
use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::ops::{Cancellation, Finish, Finished, Mark};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::task::LeaseLoss;
use stationmaster::task::{Feed, KeptAttempts};
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
        // What a share holds is counted by either, and so is what is left of it.
        let task = task.feed(Feed::EndsAndSensors).share("a".try_into().unwrap());
        match *name {
            "ready" => task.pool("nowhere".try_into().unwrap()),
            "later" => task.not_before(Timestamp::from_micros(NOW + 900)).limit("b".try_into().unwrap()),
            "retried" => task.retry(retry.clone()),
            "keeps" => {
                let task =
                    task.pool("keeps".try_into().unwrap()).pool_slots(4).also("db".try_into().unwrap(), 2);
                task.limit_count("tenant".try_into().unwrap(), 3)
            }
            "beside" => task.pool("nowhere".try_into().unwrap()),
            "sensing" => task.keep_attempts(KeptAttempts::None),
            _ => task.keep_attempts(KeptAttempts::All),
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
        let outcomes = [TaskState::Skipped, TaskState::Failed, TaskState::Success, TaskState::Cancelled];
        for (at, name) in cancels.into_iter().enumerate() {
            let (to, id) = (outcomes[at % 4], sql.id(&key(name)));
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
        let told = sql.store.read(|tx| tx.feed(0, 99)).unwrap();
        assert_eq!(told.len(), 7, "the feed tells of each, and of what failed before");
        let reasons: Vec<_> = told.iter().filter_map(|event| event.reason).collect();
        assert_eq!(reasons, [EndReason::Cancelled; 2]);
        // What was given back is given again, and the counters are folded alike.
        assert_eq!(sql.admit(NOW + 9_000_000), ours.admit(NOW + 9_000_000));
        assert_eq!(sql.state(&keys()), ours.state(&keys()));
    }
}

#[test]
fn what_cannot_be_cancelled_is_refused_with_a_reason() {
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

/// A task that is held is asked, and whatever its holder says of it then is the same by SQL as by the crate.
#[test]
fn a_cancel_with_a_deadline_asks_the_holder() {
    for make in databases() {
        let (ours, sql) = (make(), make());
        let names = ["queued", "running", "success", "skipped", "failed", "given_back", "retried"];
        let keys = names.map(key);
        let tasks = keys.clone().map(|key| {
            let task = NewTask::new(key).pool("db".try_into().unwrap()).limit("a".try_into().unwrap());
            task.lease_loss(LeaseLoss::Requeue { at_most: 9 })
        });
        let leases: Vec<LeaseRef> = [&ours, &sql]
            .map(|world| {
                world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
                let granted = world.admit(NOW);
                world
                    .store
                    .write(|tx| {
                        tx.start(now(), &leases(&granted, &names[1..]))?;
                        tx.renew(now(), Duration::from_secs(60), &leases(&granted, &names))
                    })
                    .unwrap();
                granted.iter().map(TaskRecord::lease_ref).collect()
            })
            .into_iter()
            .next_back()
            .unwrap();
        // The second is sooner, the third is not, and the reason goes with the deadline that counts.
        for (seconds, message) in [(20, "one\u{1a}1"), (10, "two"), (15, "three"), (10, "four")] {
            let grace = Duration::from_secs(seconds);
            let asked = ours.store.write(|tx| tx.cancel(now(), grace, &keys, message)).unwrap();
            let first = Timestamp::from_micros(NOW + 1_000_000 * i64::try_from(seconds.min(10)).unwrap());
            assert!(seconds == 20 || asked.iter().all(|asked| *asked == Cancellation::AskedUntil(first)));
            for key in &keys {
                let deadline = NOW + 1_000_000 * i64::try_from(seconds).unwrap();
                sql.cancel_by(sql.id(key), NOW, message, deadline).unwrap();
            }
            assert_eq!(sql.state(&keys), ours.state(&keys), "{message}");
        }
        let ends = [
            ("success", None),
            ("skipped", None),
            ("failed", None),
            ("given_back", None),
            ("failed", Some(9)),
        ];
        for (lease, (outcome, retry)) in leases[2..].iter().zip(ends) {
            let text = (outcome != "given_back").then_some("said");
            let finish = match outcome {
                "success" => Finish::success_with(*lease, "said"),
                "skipped" => Finish::skipped(*lease, "said"),
                "failed" => Finish::failed(*lease, "said"),
                _ => Finish::given_back(*lease),
            };
            let at = Timestamp::from_micros(NOW + 5);
            ours.store.write(|tx| tx.finish(at, std::slice::from_ref(&finish))).unwrap();
            let retry = retry.map(|later: i64| NOW + later);
            sql.finish(*lease, NOW + 5, outcome, text, retry).unwrap();
            assert_eq!(sql.state(&keys), ours.state(&keys), "{outcome}");
            let again = sql.finish(*lease, NOW + 6, outcome, text, retry).unwrap_err();
            assert_eq!(again.why(), Why::Repeated, "{outcome}");
        }
        let states: Vec<String> = ["success", "skipped", "failed", "given_back", "retried"]
            .map(|name| {
                sql.ask("status_by_id", &values![sql.id(&key(name))]).unwrap()[0][2].text().to_owned()
            })
            .into();
        assert_eq!(states, ["success", "skipped", "cancelled", "cancelled", "cancelled"]);
        let deadline = Timestamp::from_micros(NOW + 10_000_000);
        let reaped = [&ours, &sql].map(|world| {
            assert_eq!(
                world.store.write(|tx| tx.reap(Timestamp::from_micros(NOW + 9_999_999), 9)).unwrap(),
                []
            );
            world.store.write(|tx| tx.reap(deadline, 9)).unwrap()
        });
        assert_eq!(reaped[0], reaped[1]);
        assert_eq!(
            reaped[1].iter().map(|of| of.became).collect::<Vec<_>>(),
            [Finished::Ended(TaskState::Cancelled); 2]
        );
        assert_eq!(sql.state(&keys), ours.state(&keys));

        let over = sql.id(&key("queued"));
        assert_eq!(sql.cancel_by(over, NOW, "two", NOW).unwrap_err().why(), Why::Repeated);
        assert_eq!(sql.cancel_by(over, NOW, "other", NOW).unwrap_err().why(), Why::State);
        assert_eq!(sql.cancel_by(over, NOW, "two", i64::MAX).unwrap_err().why(), Why::Argument);
    }
}

/// A deadline goes with `cancelled` alone, also for what waits.
#[test]
fn a_deadline_of_another_outcome_is_refused() {
    for make in databases() {
        let world = make();
        fill(&world);
        let cancel = if world.is_sqlite() {
            "INSERT INTO sm_cancel (at, id, outcome, message, deadline) VALUES (?1, ?2, 'skipped', 'no', ?3)"
        } else {
            "SELECT stationmaster.cancel($1, $2, 'skipped', 'no', $3)"
        };
        let before = world.state(&keys());
        for name in ["ready", "running"] {
            let refused = world.host.ask(cancel, &values![NOW, world.id(&key(name)), NOW + 9]);
            assert_eq!(refused.unwrap_err().why(), Why::Argument, "{name}");
        }
        assert_eq!(world.state(&keys()), before);
        world.cancel_by(world.id(&key("ready")), NOW, "no", NOW + 9).unwrap();
        assert_eq!(
            world.store.read(|tx| tx.tasks(&[key("ready")])).unwrap()[0].as_ref().unwrap().state,
            TaskState::Cancelled
        );
    }
}
