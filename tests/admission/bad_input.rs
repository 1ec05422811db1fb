//! What is asked for wrongly: a typed error or a documented reason, and nothing changes.

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Ageing, Policy};
use stationmaster::bounds::MAX_SLOTS;
use stationmaster::error::Invalid;
use stationmaster::id::{LimitKey, PoolName};
use stationmaster::ops::{Finish, Finished};
use stationmaster::pool::{PoolRecord, PoolSpec, Slots};
use stationmaster::service::Admitter;
use stationmaster::store::MemoryStore;
use stationmaster::store::contract::SurveyQuery;
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, Renewal, TaskId, TaskKey, TaskRecord};

use crate::{Scene, at, db, key, on_every_store, secs};

/// Everything that a wrong call might have changed.
fn seen(scene: &Scene<'_>) -> (Vec<PoolRecord>, Vec<Option<TaskRecord>>, String) {
    let read = scene.store.read(|tx| {
        let tasks = tx.tasks_by_id(&(1..9).map(TaskId).collect::<Vec<_>>())?;
        Ok((
            tx.all_pools()?,
            tasks,
            format!("{:?} {:?}", tx.all_limits()?, raw(tx).survey(&SurveyQuery::new())?.lanes),
        ))
    });
    read.unwrap()
}

fn changes_nothing(scene: &Scene<'_>, call: impl FnOnce()) {
    let before = seen(scene);
    call();
    assert_eq!(seen(scene), before);
}

/// One running task, one waiting.
fn some_work(scene: &Scene<'_>) -> TaskRecord {
    scene.pool("db", Slots::Limited(2));
    scene.put(0, &[db("running", 1), db("waiting", 2)]);
    let running = scene.tick(0, &Policy::Backfill).granted.remove(0);
    scene.start(0, std::slice::from_ref(&running));
    running
}

#[test]
fn a_weight_of_none_or_above_the_cap() {
    on_every_store(|scene| {
        some_work(scene);
        changes_nothing(scene, || {
            for slots in [0, MAX_SLOTS + 1, u32::MAX] {
                let tasks = [db("good", 1), db("bad", slots)];
                let refused = scene.store.write(|tx| tx.enqueue(at(1), &tasks)).unwrap_err();
                let Error::Invalid(Invalid::TaskSlots { task, slots: told, .. }) = &refused else {
                    panic!("{refused:?}")
                };
                assert_eq!((**task == key("bad"), *told), (true, slots));
                let text =
                    format!("task ns/w/r/bad asks for {slots} slots of pool db: ask for 1 to 2147483647");
                assert_eq!(refused.to_string(), text);
            }
        });
        scene.put(1, &[db("largest", MAX_SLOTS)]);
        assert_eq!(scene.why("largest"), "pool db: has 2 slots in all, needs 2147483647");
    });
}

#[test]
fn an_unknown_pool_is_a_reason() {
    on_every_store(|scene| {
        scene.put(0, &[NewTask::new(key("t")).pool("nowhere".try_into().unwrap())]);
        changes_nothing(scene, || {
            let admission = scene.tick(0, &Policy::Backfill);
            assert!(admission.granted.is_empty());
            assert_eq!(admission.refused_by_reason(), [("pool_unknown", 1)].into());
        });
    });
}

#[test]
fn a_pool_is_not_resized_to_nonsense() {
    on_every_store(|scene| {
        some_work(scene);
        changes_nothing(scene, || {
            for slots in
                ["-1", "2147483648", "1e3", "2.5", "null", "true", "\"many\"", "\"4\"", "[4]", "1e99"]
            {
                let json = format!(r#"{{"name":"db","slots":{slots}}}"#);
                assert!(serde_json::from_str::<PoolSpec>(&json).is_err(), "{json}");
            }
            let large = PoolSpec::new("db", Slots::Limited(MAX_SLOTS + 1)).unwrap_err();
            assert!(matches!(
                large,
                Error::Invalid(Invalid::TooLarge { what: "a pool", value: 2_147_483_648 })
            ));
            let limit = LimitKey::new("k").unwrap();
            assert!(matches!(
                LimitSpec::new(limit, u32::MAX),
                Err(Invalid::TooLarge { what: "a limit", .. })
            ));
            assert!(serde_json::from_str::<LimitSpec>(r#"{"key":"k","max":4294967295}"#).is_err());
            assert!(serde_json::from_str::<LimitSpec>(r#"{"key":"k","max":-1}"#).is_err());
        });
        scene.pool("db", Slots::Limited(0));
        assert_eq!(scene.record("db").open(), Some(-1), "no slots at all are legal");
    });
}

#[test]
fn a_foreign_lease_is_stale() {
    on_every_store(|scene| {
        let own = some_work(scene).lease_ref();
        let foreign = [
            LeaseRef::new(own.id, own.epoch + 1),
            LeaseRef::new(own.id, own.epoch - 1),
            LeaseRef::new(TaskId(own.id.0 + 1), own.epoch),
            LeaseRef::new(TaskId(0), 1),
            LeaseRef::new(TaskId(-1), i64::MIN),
            LeaseRef::new(TaskId(i64::MAX), i64::MAX),
        ];
        changes_nothing(scene, || {
            let renewed = scene.store.write(|tx| tx.renew(at(1), secs(99), &foreign)).unwrap();
            assert_eq!(renewed, [Renewal::Lost; 6]);
            let started = scene.store.write(|tx| tx.start(at(1), &foreign)).unwrap();
            assert_eq!(started, [false; 6]);
            let ends = foreign.map(Finish::success);
            assert_eq!(scene.store.write(|tx| tx.finish(at(1), &ends)).unwrap(), [Finished::Stale; 6]);
        });
        let renewed = scene.store.write(|tx| tx.renew(at(1), secs(99), &[own])).unwrap();
        assert_eq!(renewed, [Renewal::Renewed]);
    });
}

#[test]
fn a_budget_of_none_admits_none_and_tells_why() {
    on_every_store(|scene| {
        some_work(scene);
        scene.put(0, &[db("one", 1)]);
        changes_nothing(scene, || {
            for policy in [Policy::Backfill, Policy::Reserve { after: secs(0) }] {
                let admission = scene.admit(1, &scene.order(0).policy(policy));
                assert!(admission.granted.is_empty());
                let counts = [("pool_full", 1), ("budget_spent", 1)];
                assert_eq!(admission.refused_by_reason(), counts.into());
            }
        });
    });
}

#[test]
fn a_name_with_a_nul() {
    on_every_store(|scene| {
        some_work(scene);
        changes_nothing(scene, || {
            assert!(matches!(PoolName::new("d\0b"), Err(Invalid::NulInName { at: 1, .. })));
            assert!(matches!(LimitKey::new("\0"), Err(Invalid::NulInName { at: 0, .. })));
            let key = TaskKey::new("ns", "w", "r", "t\0");
            assert!(matches!(key, Err(Error::Invalid(Invalid::NulInName { at: 1, .. }))));
            assert!(matches!(
                PoolSpec::new("d\0b", Slots::Unlimited),
                Err(Error::Invalid(Invalid::NulInName { .. }))
            ));
            assert!(serde_json::from_str::<PoolSpec>(r#"{"name":"d\u0000b","slots":1}"#).is_err());
            assert!(serde_json::from_str::<LimitSpec>(r#"{"key":"\u0000","max":1}"#).is_err());
        });
    });
}

#[test]
fn policies_and_leases_that_make_no_sense() {
    for json in [
        r#"{"reserve":{"after_s":-1}}"#,
        r#"{"reserve":{}}"#,
        r#"{"airflow_window":{"max_tis":-1}}"#,
        "\"fair\"",
    ] {
        assert!(serde_json::from_str::<Policy>(json).is_err(), "{json}");
    }
    for json in [r#"{"linear":{"period_s":-1}}"#, r#"{"linear":{}}"#, "\"quadratic\""] {
        assert!(serde_json::from_str::<Ageing>(json).is_err(), "{json}");
    }
    let admitter = Admitter::new(std::sync::Arc::new(MemoryStore::new()), "h".try_into().unwrap());
    let refused = admitter.lease(secs(0)).admit(at(0), 1);
    assert!(matches!(refused, Err(Error::Invalid(Invalid::Duration { .. }))));
}
