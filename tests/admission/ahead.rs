//! What may be asked about tasks that wait, and what it costs.

use std::sync::Arc;

use stationmaster::error::StoreErrorKind;
use stationmaster::pool::Slots;
use stationmaster::store::{ReadTx, Store};
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{Error, Result, TaskKey};

use super::{Scene, at, db, key};
use crate::stores::stores;

/// How many calls of the store a transaction that reads makes, its begin and its commit included.
fn calls(store: &Arc<dyn Store>, mut body: impl FnMut(&mut ReadTx<'_>) -> Result<()>) -> u64 {
    let faulty = FaultStore::new(Arc::clone(store));
    let untouched = (1..).find(|call| {
        faulty.arm(Fault::new(*call, When::Before, StoreErrorKind::Full));
        let done = (&faulty as &dyn Store).read(&mut body);
        assert!(
            done.is_ok() || matches!(&done, Err(Error::Store(error)) if error.kind() == StoreErrorKind::Full)
        );
        faulty.disarm().is_none()
    });
    untouched.unwrap() - 1
}

/// Tasks of many pools, with many limits: one call asks about all of them.
#[test]
fn explaining_many_tasks_takes_as_many_calls_as_explaining_one() {
    for store in stores() {
        let scene = Scene { store: &*store, ticks: 0.into() };
        let keys: Vec<TaskKey> = (0..50).map(|n| key(&n.to_string())).collect();
        for n in 0..50 {
            scene.pool(&format!("p{n}"), Slots::Limited(1));
            let limit = format!("l{n}").as_str().try_into().unwrap();
            scene.put(
                0,
                &[db(&n.to_string(), 1).pool(format!("p{n}").as_str().try_into().unwrap()).limit(limit)],
            );
        }
        scene.admit(0, &scene.order(0).serves(["gpu".try_into().unwrap()]));
        let of = |keys: &[TaskKey]| calls(&store, |tx| tx.explain(at(0), keys).map(drop));
        assert_eq!((of(&keys[..1]), of(&keys)), (7, 7), "five, a begin and a commit");
    }
}
