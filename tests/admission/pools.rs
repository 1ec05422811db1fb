//! Pools: their sizes while they are busy, their end, their statistics, their JSON.

use stationmaster::NewTask;
use stationmaster::admission::{IfExists, Policy, Reason, Subject, Undefined};
use stationmaster::canonical::PokeContext;
use stationmaster::id::PoolName;
use stationmaster::ops::Mark;
use stationmaster::pool::{DEFAULT_POOL_SLOTS, PoolRecord, PoolSpec, PoolStats, Slots};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::{TaskRecord, TaskState};

use crate::{Scene, at, db, key, names, on_every_store, secs};

fn delete(scene: &Scene<'_>, name: &str) -> Undefined {
    scene.store.write(|tx| tx.undefine(&[Subject::Pool(name.try_into()?)])).unwrap()[0]
}

fn stats(scene: &Scene<'_>, name: &str) -> PoolStats {
    scene.store.read(|tx| tx.pool_stats(&[name.try_into()?])).unwrap()[0].unwrap()
}

fn sense(scene: &Scene<'_>, task: &TaskRecord) {
    scene.start(0, std::slice::from_ref(task));
    let settings = Settings::new(secs(60), secs(600)).unwrap();
    let context = PokeContext::from_json("{}").unwrap();
    let sensor = NewSensor::new(task.lease_ref(), "k".try_into().unwrap(), context, settings);
    scene.store.write(|tx| tx.register(at(0), std::slice::from_ref(&sensor))).unwrap();
}

#[test]
fn the_default_pool_is_there_and_stays() {
    on_every_store(|scene| {
        let pool = scene.record(PoolName::DEFAULT);
        assert_eq!((pool.spec.slots, pool.used), (Slots::Limited(DEFAULT_POOL_SLOTS), 0));
        assert_eq!(delete(scene, PoolName::DEFAULT), Undefined::IsDefault);
        scene.pool(PoolName::DEFAULT, Slots::Limited(1));
        assert_eq!(delete(scene, PoolName::DEFAULT), Undefined::IsDefault);
        assert_eq!(scene.record(PoolName::DEFAULT).spec.slots, Slots::Limited(1), "resized, and kept");
    });
}

#[test]
fn an_over_committed_pool_blocks_nobody_else() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(6));
        scene.put(0, &[db("a", 3), db("b", 3)]);
        let running = scene.tick(0, &Policy::Backfill).granted;
        scene.pool("db", Slots::Limited(2));
        assert_eq!(scene.record("db").open(), Some(-4));
        assert_eq!(stats(scene, "db").open, Some(-4));
        scene.put(1, &[db("c", 1).priority(9), NewTask::new(key("elsewhere"))]);
        let admission = scene.tick(1, &Policy::Backfill);
        assert_eq!(names(&admission.granted), ["elsewhere"]);
        let full = Reason::PoolFull { pool: "db".try_into().unwrap(), open: -4, total: 2, needs: 1 };
        assert_eq!(admission.refusals[0].reason, full);
        scene.succeed(2, &running[0]);
        assert_eq!(scene.why("c"), "pool db: -1 open of 2, needs 1");
        scene.pool("db", Slots::Limited(4));
        assert_eq!(names(&scene.tick(3, &Policy::Backfill).granted), ["c"], "enlarged again");
    });
}

#[test]
fn a_pool_without_limit_admits_all_and_counts() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Unlimited);
        scene.put(0, &[db("a", 2_000_000_000), db("b", 2_000_000_000), db("c", 2_000_000_000)]);
        assert_eq!(scene.tick(0, &Policy::Reserve { after: secs(0) }).granted.len(), 3);
        let stats = stats(scene, "db");
        assert_eq!((stats.queued, stats.open, stats.total), (6_000_000_000, None, Slots::Unlimited));
        scene.pool("db", Slots::Limited(5));
        assert_eq!(scene.record("db").open(), Some(5 - 6_000_000_000));
    });
}

#[test]
fn tasks_of_a_deleted_pool_keep_a_reason_and_come_back_with_it() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(1));
        scene.put(0, &[db("a", 1), db("b", 1)]);
        let running = scene.tick(0, &Policy::Backfill).granted;
        assert_eq!(delete(scene, "db"), Undefined::InUse(1));
        scene.succeed(1, &running[0]);
        assert_eq!(delete(scene, "db"), Undefined::Removed);
        assert_eq!(delete(scene, "db"), Undefined::NotDefined);
        let admission = scene.tick(2, &Policy::Backfill);
        assert_eq!(admission.refusals[0].reason, Reason::PoolUnknown { pool: "db".try_into().unwrap() });
        assert_eq!(scene.why("b"), "pool db: does not exist");
        scene.pool("db", Slots::Limited(1));
        assert_eq!(names(&scene.tick(3, &Policy::Backfill).granted), ["b"]);
    });
}

#[test]
fn statistics_are_sums_of_slots() {
    for (keeps, open) in [(false, 40 - 2 - 3), (true, 40 - 2 - 3 - 5)] {
        on_every_store(|scene| {
            let pool = PoolSpec::new("db", Slots::Limited(40)).unwrap().sensing_keeps_slots(keeps);
            scene.store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
            scene.put(0, &[db("running", 2), db("sensing", 5), db("ended", 6)]);
            let granted = scene.tick(0, &Policy::Backfill).granted;
            scene.start(0, &granted[..1]);
            sense(scene, &granted[1]);
            scene.succeed(0, &granted[2]);
            scene.put(0, &[db("queued", 3)]);
            scene.tick(0, &Policy::Backfill);
            scene.put(
                0,
                &[db("wait-1", 7), db("wait-2", 7), db("huge", 41), db("later", 9).not_before(at(9))],
            );
            let pool = scene.record("db");
            assert_eq!(stats(scene, "db"), PoolStats::new(&pool, 2, 3, 7 + 7 + 41, 5));
            assert_eq!(stats(scene, "db").open, Some(open));
            let unknown = scene.store.read(|tx| tx.pool_stats(&["nowhere".try_into()?])).unwrap();
            assert_eq!(unknown, [None]);
        });
    }
}

#[test]
fn kept_slots_come_back_when_the_sensing_task_is_ended() {
    on_every_store(|scene| {
        let pool = PoolSpec::new("db", Slots::Limited(2)).unwrap().sensing_keeps_slots(true);
        scene.store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
        scene.put(0, &[db("waits", 2), db("next", 1)]);
        let granted = scene.tick(0, &Policy::Backfill).granted;
        sense(scene, &granted[0]);
        assert_eq!(scene.why("next"), "pool db: 0 open of 2, needs 1");
        // What was kept is given back even if the option has changed since.
        scene.pool("db", Slots::Limited(2));
        let end = [Mark::new(key("waits"), TaskState::Skipped, "enough")];
        scene.store.write(|tx| tx.mark(at(1), &end)).unwrap();
        assert_eq!(scene.record("db").used, 0);
        assert_eq!(names(&scene.tick(1, &Policy::Backfill).granted), ["next"]);
    });
}

#[test]
fn pools_survive_json() {
    on_every_store(|scene| {
        let text = r#"{"name":"db","slots":4,"description":"four at once","sensing_slots":"keep"}"#;
        let spec: PoolSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
        scene.store.write(|tx| tx.define([&spec], IfExists::Replace)).unwrap();
        scene.put(0, &[db("a", 3)]);
        scene.tick(0, &Policy::Backfill);
        let record = scene.record("db");
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(json, text.replace('}', r#","used":3}"#));
        assert_eq!(serde_json::from_str::<PoolRecord>(&json).unwrap(), record);
        let stats = serde_json::to_string(&stats(scene, "db")).unwrap();
        assert_eq!(stats, r#"{"total":4,"running":0,"queued":3,"scheduled":0,"sensing":0,"open":1}"#);
        let short: PoolSpec = serde_json::from_str(r#"{"name":"x","slots":"unlimited"}"#).unwrap();
        assert_eq!(short, PoolSpec::new("x", Slots::Unlimited).unwrap());
    });
}
