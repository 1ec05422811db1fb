//! The gauges of pools, queues and limits.

use std::time::Duration;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{IfExists, Subject};
use stationmaster::ops::AdmitRequest;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::metrics::capacity;
use stationmaster::store::Store;
use stationmaster::{NewTask, TaskKey, Timestamp};

use crate::recorder::{Panicking, Recorder, Told};
use crate::stores::stores;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn told(store: &dyn Store) -> Told {
    let recorder = Recorder::default();
    store.read(|tx| capacity(tx, NOW, &recorder)).unwrap();
    recorder.told()
}

fn task(name: &str) -> NewTask {
    let task = NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap());
    task.pool("gpu".try_into().unwrap()).pool_slots(2).queue("render".try_into().unwrap())
}

#[test]
fn what_is_open_held_waiting_and_paused() {
    for store in stores() {
        store
            .write(|tx| {
                tx.define(
                    [PoolSpec::new("gpu", Slots::Limited(3))?, PoolSpec::new("any", Slots::Unlimited)?],
                    IfExists::Leave,
                )?;
                let keys = [LimitSpec::new("k".try_into()?, 4)?, LimitSpec::of("free".try_into()?)];
                tx.define(keys, IfExists::Leave)?;
                tx.pause(&[Subject::Pool("any".try_into()?), Subject::Key("k".try_into()?)])?;
                let other = |name: &str| task(name).pool("any".try_into().unwrap()).pool_slots(1);
                let runs = task("a").limit_count("free".try_into()?, 3);
                let waits = task("b").also("any".try_into()?, 1);
                let later = other("c").not_before(NOW + Duration::from_secs(1));
                tx.enqueue(NOW, &[runs, waits, later, other("d").queue("lonely".try_into()?)])
            })
            .unwrap();
        let order =
            AdmitRequest::new("h".try_into().unwrap(), "t".try_into().unwrap(), 9, Duration::from_secs(60));
        let order = order.serves(["render".try_into().unwrap()]);
        assert_eq!(store.write(|tx| tx.admit(NOW, &order)).unwrap().granted.len(), 1);
        store.write(|tx| tx.pause(&[Subject::Queue("lonely".try_into()?)])).unwrap();

        let told = told(&*store).gauges;
        let value = |series: &str| told.get(&format!("stationmaster_{series}")).copied();
        let expected = [
            ("pool_used_slots{pool=\"gpu\"}", 2.0),
            ("pool_open_slots{pool=\"gpu\"}", 1.0),
            ("pool_ready_tasks{pool=\"gpu\"}", 1.0),
            ("pool_ready_tasks{pool=\"any\"}", 2.0),
            ("pool_paused{pool=\"gpu\"}", 0.0),
            ("pool_paused{pool=\"any\"}", 1.0),
            ("queue_waiting_tasks{queue=\"render\"}", 2.0),
            ("queue_leased_tasks{queue=\"render\"}", 1.0),
            ("queue_served{queue=\"render\"}", 1.0),
            ("queue_paused{queue=\"render\"}", 0.0),
            ("queue_waiting_tasks{queue=\"lonely\"}", 1.0),
            ("queue_served{queue=\"lonely\"}", 0.0),
            ("queue_paused{queue=\"lonely\"}", 1.0),
            ("limit_used{limit=\"free\"}", 3.0),
            ("limit_used{limit=\"k\"}", 0.0),
            ("limit_max{limit=\"k\"}", 4.0),
            ("limit_paused{limit=\"k\"}", 1.0),
        ];
        for (series, number) in expected {
            assert_eq!(value(series), Some(number), "{series} of {told:#?}");
        }
        assert_eq!(value("pool_open_slots{pool=\"any\"}"), None, "it has no size");
        assert_eq!(value("limit_max{limit=\"free\"}"), None);
        assert!(store.read(|tx| capacity(tx, NOW, &Panicking)).is_ok(), "an observer disturbs nobody");
    }
}

#[test]
fn labels_are_bounded_and_the_rest_is_reported_in_sum() {
    let store = stationmaster::store::MemoryStore::new();
    let pools = (0..1_005).map(|n| PoolSpec::new(format!("p{n:04}"), Slots::Limited(n)).unwrap());
    let pools: Vec<PoolSpec> = pools.collect();
    store.write(|tx| tx.define(&pools, IfExists::Leave)).unwrap();
    let told = told(&store).gauges;
    let open = |pool: &str| told.get(&format!("stationmaster_pool_open_slots{{pool=\"{pool}\"}}")).copied();
    // The default pool is the first of 1,006.
    assert_eq!((open("default_pool"), open("p0998"), open("p0999")), (Some(128.0), Some(998.0), None));
    assert_eq!(open("other"), Some(f64::from((999..1_005).sum::<i32>())));
    assert_eq!(told.keys().filter(|series| series.starts_with("stationmaster_pool_open")).count(), 1_001);
}
