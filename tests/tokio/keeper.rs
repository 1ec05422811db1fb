//! Leases that tasks of a runtime hold.

use std::ops::ControlFlow;
use std::sync::Arc;

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::{Admitter, Kept, LoopHandle, Service, Upkeep};
use stationmaster::store::Store;
use stationmaster::tokio::{AsyncService, drive};
use stationmaster::{NewTask, TaskRecord};

use crate::cut::{all_work_done, cut, in_order};
use crate::scene::{at, key, secs};
use crate::stores::stores;

/// Tasks that are granted at this instant, for 60 s.
fn granted(
    store: &Arc<dyn Store>,
    names: &[&str],
    now: stationmaster::Timestamp,
) -> (Vec<TaskRecord>, Admitter) {
    let tasks: Vec<NewTask> = names.iter().map(|name| NewTask::new(key(name))).collect();
    store.write(|tx| tx.enqueue(now, &tasks)).unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).lease(secs(60));
    (admitter.tick(now).unwrap().granted, admitter)
}

#[test]
fn a_task_that_waits_is_notified_and_the_rest_is_given_back() {
    for store in stores() {
        let (tasks, admitter) = granted(&store, &["lost", "kept", "dropped"], at(0));
        in_order().block_on(async {
            let keeper = admitter.keeper();
            let mut service = AsyncService::new(keeper.clone());
            let mut kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
            let waits = tokio::spawn(kept[0].lost());
            assert_eq!(service.tick(at(20)).await.unwrap().renewed, 3);
            drop(kept.pop());

            // The other two are reaped; one of them is granted to the same holder again.
            assert_eq!(Upkeep::new(store.clone()).grace(secs(0)).tick(at(80)).unwrap().reaped.len(), 3);
            let report = service.tick(at(81)).await.unwrap();
            assert_eq!(report.lost, [kept[0].lease(), kept[1].lease()]);
            waits.await.unwrap();
            assert!(kept[1].is_lost());

            let mut admitter = admitter;
            let again: Vec<Kept> =
                admitter.tick(at(82)).unwrap().granted.iter().map(|task| keeper.keep(task)).collect();
            assert_eq!(service.with(|keeper| keeper.give_back(at(83))).await.unwrap().unwrap(), 3);
            assert!(again.iter().all(Kept::is_lost));
        });
    }
}

#[test]
fn a_renewal_whose_future_is_dropped_takes_effect() {
    for store in stores() {
        let (tasks, admitter) = granted(&store, &["a"], at(0));
        in_order().block_on(async {
            let keeper = admitter.keeper();
            let mut service = AsyncService::new(keeper.clone());
            let kept = keeper.keep(&tasks[0]);
            assert!(cut(1, || {}, service.tick(at(20))).await.is_none());
            all_work_done().await;
            assert!(kept.holds(at(79)));
            assert_eq!(service.tick(at(21)).await.unwrap().renewed, 1, "the report of that tick");
            assert_eq!(service.tick(at(22)).await.unwrap().renewed, 0);
        });
    }
}

#[test]
fn a_driven_keeper_renews_what_is_kept_while_it_sleeps() {
    for store in stores() {
        let (tasks, admitter) = granted(&store, &["a"], SystemClock.now() - secs(30));
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(
            async {
                let (keeper, handle) = (admitter.keeper(), LoopHandle::new());
                let (driven, kept) = (keeper.clone(), tokio::sync::Notify::new());
                let mut service = AsyncService::new(driven);
                let mut renewed = 0;
                let driving = drive(&mut service, &SystemClock, &handle, secs(3_600), |report| {
                    renewed += report.unwrap().renewed;
                    kept.notify_one();
                    if renewed > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                let keeps = async {
                    kept.notified().await; // it has found nothing, and sleeps
                    keeper.keep(&tasks[0])
                };
                let both = async { tokio::join!(driving, keeps) };
                let (driven, kept) = tokio::time::timeout(secs(60), both).await.expect("it was woken");
                driven.unwrap();
                assert!(kept.holds(SystemClock.now()));
            },
        );
    }
}
