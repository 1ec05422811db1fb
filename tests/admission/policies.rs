//! Reservations, ageing, and the counts of reasons.

use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{self, LimitSpec};
use stationmaster::admission::{Ageing, AirflowWindow, Policy, Reason};
use stationmaster::id::LimitKey;
use stationmaster::ops::{Finish, Outcome, RetryAdvice};
use stationmaster::pool::Slots;
use stationmaster::service::{Admitter, Service};
use stationmaster::task::LeaseLoss;
use stationmaster::{NewTask, TaskRecord, TaskState};

use crate::stores::stores;
use crate::{Scene, at, db, key, names, on_every_store, secs};

fn reserve(seconds: u64) -> Policy {
    Policy::Reserve { after: secs(seconds) }
}

/// Pool db of four slots, three of them held by tasks of one slot each, and a task that needs four.
fn big_one_behind_small_ones(scene: &Scene<'_>, big: NewTask) -> Vec<TaskRecord> {
    scene.pool("db", Slots::Limited(4));
    scene.put(0, &[db("a", 1), db("b", 1), db("c", 1)]);
    let granted = scene.tick(0, &Policy::Backfill).granted;
    scene.put(0, &[big]);
    granted
}

#[test]
fn small_tasks_pass_a_big_one_until_it_has_waited() {
    on_every_store(|scene| {
        let running = big_one_behind_small_ones(scene, db("big", 4));
        scene.put(1, &[db("d", 1), db("e", 1)]);
        let early = scene.tick(59, &reserve(60));
        assert_eq!(names(&early.granted), ["d"]);
        assert_eq!(early.refused_by_reason(), [("pool_full", 2)].into());
        scene.succeed(60, &running[0]);
        let big = scene.task("big").id;
        let late = scene.tick(60, &reserve(60));
        assert!(late.granted.is_empty(), "one slot is open and gathers");
        let passed = late.refusals.iter().find(|lane| lane.lane.slots == 1).unwrap();
        assert_eq!(passed.reason, Reason::Reserved { pool: "db".try_into().unwrap(), open: 1, task: big });
        assert_eq!(
            passed.reason.to_string(),
            format!("pool db: its 1 open slots gather for task number {}", big.0)
        );
        for task in running[1..].iter().chain(&early.granted) {
            scene.succeed(61, task);
        }
        assert_eq!(names(&scene.tick(61, &reserve(60)).granted), ["big"]);
    });
}

#[test]
fn backfill_lets_a_big_one_starve() {
    on_every_store(|scene| {
        let mut running = big_one_behind_small_ones(scene, db("big", 4));
        for second in 1..50 {
            scene.put(second, &[db(&format!("small-{second}"), 1), db(&format!("more-{second}"), 1)]);
            running.extend(scene.tick(second, &Policy::Backfill).granted);
            scene.succeed(second, &running.remove(0));
        }
        assert_eq!(scene.task("big").state, TaskState::Scheduled);
    });
}

#[test]
fn what_stands_before_the_big_one_is_not_held_up() {
    on_every_store(|scene| {
        big_one_behind_small_ones(scene, db("big", 4));
        scene.put(100, &[db("urgent", 1).priority(1), db("late", 1)]);
        assert_eq!(names(&scene.tick(100, &reserve(60)).granted), ["urgent"]);
    });
}

#[test]
fn other_pools_and_hopeless_tasks_are_not_touched_by_a_reservation() {
    on_every_store(|scene| {
        let limit = LimitKey::new("closed").unwrap();
        scene.store.write(|tx| tx.define([LimitSpec::new(limit.clone(), 0)?], IfExists::Replace)).unwrap();
        big_one_behind_small_ones(scene, db("never", 5).priority(2));
        scene.put(0, &[db("limited", 4).priority(1).limit(limit.clone())]);
        scene.put(100, &[db("small", 1), NewTask::new(key("elsewhere"))]);
        let admission = scene.tick(100, &reserve(60));
        assert_eq!(
            names(&admission.granted),
            ["small", "elsewhere"],
            "neither reserves what it could not use"
        );
    });
}

#[test]
fn a_task_waits_from_its_due_instant_and_again_from_its_retry() {
    on_every_store(|scene| {
        let retry = stationmaster::backoff::RetryPolicy::fixed(secs(10)).max_attempts(3).build().unwrap();
        let task = db("big", 4).not_before(at(50)).retry(retry).lease_loss(LeaseLoss::Requeue { at_most: 1 });
        let running = big_one_behind_small_ones(scene, task);
        assert_eq!(scene.task("big").ready_at, at(50));
        scene.put(90, &[db("small", 1)]);
        scene.succeed(0, &running[0]);
        assert_eq!(names(&scene.tick(109, &reserve(60)).granted), ["small"], "59 seconds after it came due");
        scene.succeed(109, &scene.task("small"));
        scene.put(109, &[db("other", 1)]);
        assert!(scene.tick(110, &reserve(60)).granted.is_empty());

        for task in &running[1..] {
            scene.succeed(110, task);
        }
        let big = scene.tick(110, &reserve(60)).granted.remove(0);
        assert_eq!(
            (names(std::slice::from_ref(&big)), big.ready_at),
            (vec!["big"], at(50)),
            "as it was when granted"
        );
        scene.start(111, std::slice::from_ref(&big));
        let failed = Outcome::Failed { message: "no".into(), retry: RetryAdvice::Policy };
        scene.store.write(|tx| tx.finish(at(120), &[Finish::new(big.lease_ref(), failed.clone())])).unwrap();
        assert_eq!(scene.task("big").ready_at, at(130), "when the retry comes due");
        let other = scene.tick(120, &reserve(60)).granted.remove(0);
        scene.succeed(120, &other);

        let again = scene.tick(131, &reserve(60)).granted.remove(0);
        assert_eq!(again.ready_at, at(130));
        scene.store.write(|tx| tx.reap(at(2_000_000), 9)).unwrap();
        let lost = scene.task("big");
        assert_eq!(
            (lost.state, lost.ready_at),
            (TaskState::Scheduled, at(130)),
            "it lost its lease, not its place"
        );
    });
}

#[test]
fn old_tasks_catch_up_with_urgent_ones() {
    on_every_store(|scene| {
        let ageing = Ageing::Linear { period: secs(60) };
        let put = |now, task: NewTask| {
            scene.store.write(|tx| tx.enqueue_ageing(at(now), ageing, std::slice::from_ref(&task))).unwrap();
        };
        put(0, NewTask::new(key("old")).priority(0));
        put(61, NewTask::new(key("one")).priority(1));
        put(59, NewTask::new(key("other-one")).priority(1));
        put(0, NewTask::new(key("later")).priority(1).not_before(at(600)));
        assert_eq!(scene.task("later").rank, 540_000_000, "it waits from its due instant");
        let order = names(&scene.tick(600, &Policy::Backfill).granted).join(" ");
        assert_eq!(order, "other-one old one later");
    });
}

#[test]
fn tasks_without_ageing_go_before_those_with_it() {
    on_every_store(|scene| {
        let ageing = Ageing::Linear { period: secs(60) };
        let now = 1_700_000_000;
        let aged = NewTask::new(key("aged")).priority(1_000);
        scene.store.write(|tx| tx.enqueue_ageing(at(now), ageing, std::slice::from_ref(&aged))).unwrap();
        scene.put(now, &[NewTask::new(key("plain")).priority(-1_000)]);
        assert_eq!(names(&scene.tick(now, &Policy::Backfill).granted), ["plain", "aged"]);
    });
}

#[test]
fn every_kind_of_reason_is_counted() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(2));
        let limit = LimitKey::new("tenant").unwrap();
        scene.store.write(|tx| tx.define([LimitSpec::new(limit.clone(), 1)?], IfExists::Replace)).unwrap();
        scene.put(0, &[db("first", 1).priority(9), db("two", 2).priority(8), db("three", 3), db("more", 1)]);
        scene.put(0, &[NewTask::new(key("nowhere")).pool("nowhere".try_into().unwrap())]);
        scene.put(0, &["l1", "l2", "l3"].map(|name| NewTask::new(key(name)).limit(limit.clone())));
        scene.put(0, &["n1", "n2"].map(|name| NewTask::new(key(name)).priority(-9)));
        let order = scene.order(3).policy(reserve(0));
        let admission = scene.admit(0, &order);
        assert_eq!(names(&admission.granted), ["first", "l1", "n1"]);
        let counts = admission.refused_by_reason();
        let expected = [
            ("pool_unknown", 1),
            ("never_fits", 1),
            ("pool_full", 1),
            ("limit_reached", 2),
            ("reserved", 1),
            ("budget_spent", 1),
        ];
        assert_eq!(counts, expected.into());
        let json = serde_json::to_string(&counts).unwrap();
        assert!(json.starts_with(r#"{"budget_spent":1,"limit_reached":2"#), "{json}");
        assert!(counts.keys().all(|kind| json.contains(&format!("\"{kind}\":"))));
    });
}

#[test]
fn a_window_tells_what_it_did_not_reach_and_what_is_missing() {
    on_every_store(|scene| {
        let task = |name: &str| {
            let key = key(name);
            let keys =
                [limits::workflow(&key), limits::task(&key), limits::task_in_run(&key)].map(Result::unwrap);
            keys.into_iter().fold(NewTask::new(key), NewTask::limit)
        };
        scene.put(0, &[task("a"), task("b"), task("c")]);
        let admission = scene.tick(0, &Policy::AirflowWindow(AirflowWindow::new(2)));
        assert_eq!(names(&admission.granted), ["a", "b"]);
        assert_eq!(admission.refusals[0].reason, Reason::OutsideWindow { size: 2 });
        let workflow = limits::workflow(&key("c")).unwrap();
        let window = AirflowWindow::new(2).missing(vec![workflow.clone()]);
        let admission = scene.tick(0, &Policy::AirflowWindow(window));
        assert!(admission.granted.is_empty());
        assert_eq!(admission.missing, std::slice::from_ref(&workflow));
        assert_eq!(admission.refusals[0].reason, Reason::WorkflowMissing { workflow });
        let none = scene.tick(0, &Policy::AirflowWindow(AirflowWindow::new(0)));
        assert!(none.granted.is_empty());
    });
}

#[test]
fn the_admitter_takes_the_policy_from_its_options() {
    for store in stores() {
        let put = |tasks: &[NewTask]| store.write(|tx| tx.enqueue(at(0), tasks)).unwrap();
        put(&[NewTask::new(key("a")).pool_slots(128)]);
        put(&["b", "c"].map(|name| NewTask::new(key(name)).priority(1)));
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).budget(1).policy(reserve(0));
        assert_eq!(names(&admitter.tick(at(0)).unwrap().granted), ["b"]);
        put(&[NewTask::new(key("d")).priority(-1)]);
        assert_eq!(names(&admitter.tick(at(0)).unwrap().granted), ["c"]);
        let counts = admitter.tick(at(0)).unwrap().refused_by_reason();
        assert_eq!(counts, [("pool_full", 1), ("reserved", 1)].into());
    }
}
