//! Many lanes: they are filed by their first tasks, and marks keep those asleep that do not fit. What is open, late or
//! rolled back elsewhere changes neither.

use std::time::Duration;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{IfExists, Policy};
use stationmaster::id::LimitKey;
use stationmaster::ops::{AdmitRequest, Finish, Mark};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::PostgresStore;
use stationmaster::testing::core::naming;
use stationmaster::testing::planner_settings;
use stationmaster::{Error, NewTask, TaskState};

use super::hand::Hand;
use super::scene::{LEVELS, Scene, key, now, order, task};
use crate::pool;

const FIRST_LANES: &str = include_str!("../../../src/store/postgres/tx/tick/first_lanes.sql");
const LANES_BEHIND: &str = include_str!("../../../src/store/postgres/tx/tick/lanes_behind.sql");

/// If there are more lanes than this, they are read in pages.
const NAMED: usize = 2;

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:04}")).collect()
}

/// A task in a lane of its own.
fn alone(name: &str) -> NewTask {
    task(name).limit(LimitKey::new(name).unwrap())
}

fn enqueue(scene: &Scene, tasks: &[NewTask]) {
    scene.store.write(|tx| tx.enqueue(now(), tasks)).unwrap();
}

/// The names of what a tick of this store grants.
fn granted(store: &PostgresStore, budget: usize) -> Vec<String> {
    let order = naming(order(budget), NAMED);
    let granted = store.write(|tx| tx.last(|tx| tx.admit(now(), &order))).unwrap().granted;
    granted.into_iter().map(|task| task.key.task.to_string()).collect()
}

/// Enough lanes to be read in pages, with one task each, in a pool of this many slots. The first task is
/// granted.
fn scene(lanes: usize, slots: Slots) -> Scene {
    let scene = Scene::new();
    scene.store.write(|tx| tx.define([PoolSpec::new("narrow", slots)?], IfExists::Replace)).unwrap();
    let tasks: Vec<NewTask> =
        names("t", lanes).iter().map(|name| alone(name).pool(pool("narrow", 1).name)).collect();
    enqueue(&scene, &tasks);
    assert_eq!(granted(&scene.store, 1), ["t0000"]);
    assert_eq!(scene.ask("SELECT many FROM sm.tick"), [[Some("t".to_owned())]]);
    scene.audit();
    scene
}

fn marks(scene: &Scene) -> i64 {
    scene.numbers("SELECT count(*) FROM sm.lane_order WHERE sleeps")[0]
}

/// What commits late is the first task of all, in a new lane, in one that is known, and in one that was removed. Two stores
/// take turns, and one of them has met few lanes.
#[test]
fn what_commits_late_is_found_before_all_lanes() {
    for level in LEVELS {
        for lane in ["new", "t0006", "t0000"] {
            let scene = scene(8, Slots::Unlimited);
            let other = scene.scratch.open(|options| options);
            let late = Hand::begin(&scene.scratch.0, level);
            let first =
                task("first").pool(pool("narrow", 1).name).limit(LimitKey::new(lane).unwrap()).priority(9);
            late.call(move |tx| tx.enqueue(now(), &[first]).map(|done| done.len().to_string())).done();
            scene.store.write(|tx| tx.finish(now(), &[Finish::success(scene.lease("t0000"))])).unwrap();
            assert_eq!(granted(&other, 1), ["t0001"], "{level}, {lane}");
            scene.audit();
            late.commit();
            scene.audit();
            assert_eq!(granted(&scene.store, 1), ["first"], "{level}, {lane}");
            scene.audit();
            assert_eq!(granted(&other, 9), names("t", 8)[2..], "{level}, {lane}");
            scene.audit();
        }
    }
}

/// A tick that rolls back leaves no mark, and everything as it was filed.
#[test]
fn a_tick_that_is_rolled_back_marks_nothing() {
    let scene = scene(8, Slots::Limited(2));
    let filed = "SELECT ARRAY[id::text, parent::text, first::text, from_no::text, sleeps::text]::text FROM sm.lane_order ORDER BY 1";
    let before = scene.ask(filed);
    let order = naming(order(9), NAMED);
    let undone: Result<(), Error> = scene.store.write(|tx| {
        assert_eq!(tx.admit(now(), &order)?.granted.len(), 1);
        Err(Error::abort("on purpose"))
    });
    assert!(undone.is_err());
    assert_eq!((marks(&scene), scene.ask(filed)), (0, before));
    scene.audit();
    assert_eq!(granted(&scene.store, 9), ["t0001"]);
    assert_eq!(marks(&scene), 1, "one for the pool, however many lanes wait for it");
    scene.audit();
}

/// A give-back wakes no lane while its transaction is open, nor if that is rolled back. What a tick names, it
/// looks at though it sleeps: so there are more slots than that.
#[test]
fn what_gives_back_wakes_when_it_is_folded() {
    for level in LEVELS {
        let scene = scene(8, Slots::Limited(3));
        let held = names("t", 3);
        assert_eq!((granted(&scene.store, 9), marks(&scene)), (held[1..].to_vec(), 1));
        for commits in [false, true] {
            let host = Hand::begin(&scene.scratch.0, level);
            let ends: Vec<Finish> = held.iter().map(|name| Finish::success(scene.lease(name))).collect();
            host.call(move |tx| tx.finish(now(), &ends).map(|done| done.len().to_string())).done();
            assert_eq!((granted(&scene.store, 9).len(), marks(&scene)), (0, 1), "{level}");
            scene.audit();
            match commits {
                true => host.commit(),
                false => host.rollback(),
            }
            scene.audit();
        }
        assert_eq!(granted(&scene.store, 9), ["t0003", "t0004", "t0005"], "{level}");
        assert_eq!(marks(&scene), 1, "{level}");
        scene.audit();
    }
}

/// The plan that is not granted because a host has its tasks locked has closed the pool for the others.
#[test]
fn locked_first_tasks_are_passed_over() {
    for commits in [false, true] {
        let scene = scene(8, Slots::Limited(2));
        let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        let locked = ["t0001", "t0002"].map(|name| Mark::new(key(name), TaskState::Failed, "m"));
        host.call(move |tx| tx.mark(now(), &locked).map(|marked| marked.len().to_string())).done();
        assert_eq!(granted(&scene.store, 9), ["t0003"], "committed: {commits}");
        assert_eq!(marks(&scene), 1);
        scene.audit();
        match commits {
            true => host.commit(),
            false => host.rollback(),
        }
        scene.store.write(|tx| tx.finish(now(), &[Finish::success(scene.lease("t0003"))])).unwrap();
        let next = if commits { "t0004" } else { "t0001" };
        assert_eq!(granted(&scene.store, 9), [next], "committed: {commits}");
        scene.audit();
    }
}

/// The lanes of a key that is full move to a group, and sleep there until less counts against the key.
#[test]
fn a_group_wakes_when_its_key_has_room() {
    let scene = scene(8, Slots::Unlimited);
    let full = LimitKey::new("full").unwrap();
    scene.store.write(|tx| tx.define([LimitSpec::new(full.clone(), 1)?], IfExists::Replace)).unwrap();
    let tasks: Vec<NewTask> =
        names("u", 6).iter().map(|name| alone(name).limit(full.clone()).priority(9)).collect();
    enqueue(&scene, &tasks);
    assert_eq!(granted(&scene.store, 1), ["u0000"]);
    assert_eq!(granted(&scene.store, 1), ["t0001"]);
    assert_eq!(marks(&scene), 1, "one for the key");
    scene.audit();
    assert_eq!(granted(&scene.store, 1), ["t0002"]);
    scene.store.write(|tx| tx.finish(now(), &[Finish::success(scene.lease("u0000"))])).unwrap();
    scene.audit();
    assert_eq!(granted(&scene.store, 1), ["u0001"]);
    assert_eq!(granted(&scene.store, 1), ["t0003"]);
    assert_eq!(marks(&scene), 1, "one for the key again");
    scene.audit();
    scene.store.write(|tx| tx.define([LimitSpec::new(full.clone(), 3)?], IfExists::Replace)).unwrap();
    assert_eq!(marks(&scene), 0, "a definition removes all");
    assert_eq!(granted(&scene.store, 3), ["u0002", "u0003", "t0004"]);
    scene.audit();
}

/// With few lanes nothing is filed any more.
#[test]
fn few_lanes_are_not_filed() {
    let ticks: [fn(AdmitRequest) -> AdmitRequest; 3] = [
        |order| order,
        |order| order.serves(["default".try_into().unwrap()]),
        |order| order.policy(Policy::Reserve { after: Duration::from_secs(1) }),
    ];
    for (nth, with) in ticks.into_iter().enumerate() {
        let scene = scene(8, Slots::Unlimited);
        assert_eq!(granted(&scene.store, 9), names("t", 8)[1..]);
        // One tick in a while looks.
        for _ in 0..200 {
            let order = with(naming(order(9), NAMED));
            assert_eq!(scene.store.write(|tx| tx.last(|tx| tx.admit(now(), &order))).unwrap().granted, []);
        }
        assert_eq!(
            scene.numbers("SELECT count(*) FROM sm.lane_order UNION ALL SELECT count(*) FROM sm.ready_lane"),
            [0, 0],
            "{nth}"
        );
        assert_eq!(scene.ask("SELECT many FROM sm.tick"), [[Some("f".to_owned())]], "{nth}");
        scene.audit();
    }
}

/// How many lanes leave dead rows behind.
const DEAD: usize = 1_500;

fn buffers(scene: &Scene, before: &str, statement: &str) -> i64 {
    let settings: String = planner_settings().iter().map(|set| format!("SET LOCAL {set};")).collect();
    let before = scene.sql(before, &[]);
    let plan = scene.ask(&format!(
        "BEGIN; {settings} {before}; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}; ROLLBACK"
    ));
    let plan: serde_json::Value = serde_json::from_str(plan.last().unwrap()[0].as_deref().unwrap()).unwrap();
    let plan = &plan[0]["Plan"];
    ["Shared Hit Blocks", "Shared Read Blocks"].iter().map(|what| plan[*what].as_i64().unwrap()).sum()
}

/// An old snapshot keeps the dead rows of all lanes that were granted from, and their entries in the indexes.
#[test]
fn a_page_of_lanes_reads_no_dead_rows() {
    let scene = scene(DEAD, Slots::Unlimited);
    let reader = Hand::begin(&scene.scratch.0, "REPEATABLE READ");
    reader.sql("SELECT txid_current_snapshot()").done();
    assert_eq!(granted(&scene.store, DEAD - 9).len(), DEAD - 9);
    scene.audit();
    let begin = "{-9223372036854775808,-9223372036854775808,-9223372036854775808,-9223372036854775808}";
    let page = scene.sql(LANES_BEHIND, &[begin, "4"]).replace("$3::text[]", "NULL::text[]");
    let first = scene.sql(FIRST_LANES, &["4"]).replace("$2::text[]", "NULL::text[]");
    for (of, statement, from) in [
        (
            "a page",
            page,
            format!("UPDATE sm.lane_order SET first = '{begin}' WHERE queue IS NOT NULL OR parent IS NULL"),
        ),
        (
            "the first ones",
            first,
            "UPDATE sm.lane_order SET from_no = 0 WHERE from_no IS NOT NULL".to_owned(),
        ),
    ] {
        let (filed, all) = (buffers(&scene, "SELECT", &statement), buffers(&scene, &from, &statement));
        assert!(
            filed * 3 < all,
            "{of}: {filed} buffers from where lanes are filed on, {all} from the beginning"
        );
    }
    reader.rollback();
}
