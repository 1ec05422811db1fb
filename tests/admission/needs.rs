//! Tasks that need several pools, and tasks that count more than 1.

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{AirflowWindow, Drain, IfExists, Policy, Reason, Subject};
use stationmaster::bounds::MAX_SLOTS;
use stationmaster::error::Invalid;
use stationmaster::pool::Slots;
use stationmaster::{Error, NewTask};

use crate::{Scene, at, db, key, names, on_every_store, secs};

/// A task that needs slots of `db` and of `licence`.
fn both(name: &str, slots: u32, licences: u32) -> NewTask {
    db(name, slots).also("licence".try_into().unwrap(), licences)
}

fn pools(scene: &Scene<'_>, db: u32, licences: u32) {
    scene.pool("db", Slots::Limited(db));
    scene.pool("licence", Slots::Limited(licences));
}

fn used(scene: &Scene<'_>) -> [i64; 2] {
    ["db", "licence"].map(|name| scene.record(name).used)
}

#[test]
fn a_task_takes_all_of_its_pools_or_none() {
    on_every_store(|scene| {
        pools(scene, 4, 2);
        scene.put(0, &[both("a", 1, 2), both("b", 1, 1), db("c", 1)]);
        let granted = scene.tick(0, &Policy::Backfill).granted;
        assert_eq!((names(&granted), used(scene)), (vec!["a", "c"], [2, 2]), "b took nothing of db");
        assert_eq!(scene.why("b"), "pool licence: 0 open of 2, needs 1");
        scene.succeed(1, &granted[0]);
        assert_eq!(used(scene), [1, 0]);
        assert_eq!(names(&scene.tick(1, &Policy::Backfill).granted), ["b"]);
    });
}

#[test]
fn every_pool_that_refuses_is_reported() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(0));
        scene.put(0, &[both("a", 1, 3)]);
        let small = "pool db: has 0 slots in all, needs 1";
        assert_eq!(scene.why("a"), format!("pool licence: does not exist; also {small}"), "that comes first");
        scene.pool("licence", Slots::Limited(2));
        let both = format!("{small}; also pool licence: has 2 slots in all, needs 3");
        assert_eq!(scene.why("a"), both, "its own pool comes first");
        scene.pool("db", Slots::Unlimited);
        assert_eq!(scene.why("a"), "pool licence: has 2 slots in all, needs 3");
        let licence = Subject::Pool("licence".try_into().unwrap());
        scene.store.write(|tx| tx.pause(std::slice::from_ref(&licence))).unwrap();
        assert_eq!(scene.why("a"), "pool licence: paused; also pool licence: has 2 slots in all, needs 3");
    });
}

#[test]
fn a_pool_that_is_needed_besides_is_drained_too() {
    on_every_store(|scene| {
        pools(scene, 4, 2);
        scene.put(0, &[both("a", 1, 2)]);
        let running = scene.tick(0, &Policy::Backfill).granted.remove(0);
        let licence = [Subject::Pool("licence".try_into().unwrap())];
        scene.store.write(|tx| tx.pause(&licence)).unwrap();
        let drain = || scene.store.read(|tx| tx.drain(&licence)).unwrap();
        assert_eq!(drain(), [Drain::Draining { leases: 1 }]);
        scene.succeed(1, &running);
        assert_eq!(drain(), [Drain::Drained]);
    });
}

/// The pool with open slots is reserved as well. Otherwise small tasks would use these up while the others gather.
#[test]
fn slots_gather_in_all_pools_of_a_task() {
    on_every_store(|scene| {
        pools(scene, 2, 2);
        scene.put(0, &[db("x", 2)]);
        let x = scene.tick(0, &Policy::Backfill).granted.remove(0);
        scene.put(1, &[both("big", 2, 2)]);
        scene.put(2, &[NewTask::new(key("small")).pool("licence".try_into().unwrap())]);
        let reserve = Policy::Reserve { after: secs(0) };
        let admission = scene.tick(3, &reserve);
        assert!(admission.granted.is_empty(), "{:?}", names(&admission.granted));
        let small = admission.refusals.iter().find(|lane| lane.lane.also.is_empty()).unwrap();
        let (pool, task) = ("licence".try_into().unwrap(), scene.task("big").id);
        assert_eq!(small.reason, Reason::Reserved { pool, open: 2, task });
        scene.succeed(4, &x);
        assert_eq!(names(&scene.tick(5, &reserve).granted), ["big"]);
    });
}

#[test]
fn a_count_is_what_a_task_takes_of_a_maximum() {
    on_every_store(|scene| {
        let api = || "api".try_into().unwrap();
        let heavy = |name: &str, count| db(name, 1).limit_count(api(), count);
        scene.pool("db", Slots::Unlimited);
        scene.store.write(|tx| tx.define([LimitSpec::new(api(), 5)?], IfExists::Leave)).unwrap();
        scene.put(0, &[heavy("a", 3), heavy("b", 3), heavy("c", 2), heavy("d", 6)]);
        let granted = scene.tick(0, &Policy::Backfill).granted;
        assert_eq!(names(&granted), ["a", "c"]);
        assert_eq!(scene.why("b"), "limit api: 5 of 5, needs 3");
        assert_eq!(scene.why("d"), "limit api: 5 of 5, needs 6");
        scene.succeed(1, &granted[0]);
        assert_eq!(names(&scene.tick(1, &Policy::Backfill).granted), ["b"]);
    });
}

#[test]
fn the_window_knows_neither() {
    on_every_store(|scene| {
        pools(scene, 4, 4);
        let window = || scene.order(9).policy(Policy::AirflowWindow(AirflowWindow::new(9)));
        for (task, unknown) in [
            (both("a", 1, 1), "tasks with several pools"),
            (db("b", 1).limit_count("k".try_into().unwrap(), 2), "counts above 1"),
        ] {
            scene.put(0, std::slice::from_ref(&task));
            let refused = scene.store.write(|tx| tx.admit(at(0), &window())).unwrap_err();
            assert!(
                matches!(refused, Error::Invalid(Invalid::WindowWith { what }) if what == unknown),
                "{refused}"
            );
            let running = scene.tick(0, &Policy::Backfill).granted.remove(0);
            scene.succeed(0, &running);
        }
        scene.put(0, &[db("c", 1).limit_count("k".try_into().unwrap(), 1)]);
        assert_eq!(names(&scene.admit(0, &window()).granted), ["c"], "a count of 1 is none");
    });
}

#[test]
fn what_no_task_can_need_is_refused_and_nothing_is_enqueued() {
    on_every_store(|scene| {
        let many = (0..8).fold(db("t", 1), |task, n| task.also(format!("p{n}").try_into().unwrap(), 1));
        let k = || "k".try_into().unwrap();
        let refused = [
            (both("t", 1, 0), "task ns/w/r/t asks for 0 slots of pool licence: ask for 1 to 2147483647"),
            (
                both("t", 1, MAX_SLOTS + 1),
                "task ns/w/r/t asks for 2147483648 slots of pool licence: ask for 1 to 2147483647",
            ),
            (
                db("t", 1).also("db".try_into().unwrap(), 1),
                "task ns/w/r/t names pool db twice: ask for all of its slots of a pool at once",
            ),
            (many, "task ns/w/r/t needs 9 pools: ask for slots of at most 8"),
            (db("t", 1).limit_count(k(), 0), "task ns/w/r/t counts 0 against limit k: count 1 to 2147483647"),
            (
                db("t", 1).limit_count(k(), u32::MAX),
                "task ns/w/r/t counts 4294967295 against limit k: count 1 to 2147483647",
            ),
        ];
        for (task, text) in refused {
            let error =
                scene.store.write(|tx| tx.enqueue(at(0), &[db("good", 1), task.clone()])).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        let keys = [key("good"), key("t")];
        assert_eq!(scene.store.read(|tx| tx.tasks(&keys)).unwrap(), [None, None]);
    });
}
