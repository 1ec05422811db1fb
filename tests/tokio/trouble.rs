//! Async pokes that never end, panic, block, or lose their runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stationmaster::TaskState;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeRequest, Service};
use stationmaster::tokio::AsyncService;
use tokio::runtime::{Builder, Handle};

use crate::fleet::*;
use crate::scene::*;
use crate::stores::stores;

/// A poke that never answers.
fn forever(flights: &Flights) -> impl Fn(PokeRequest) -> BoxedPoke + Send + Sync + use<> {
    let flights = flights.clone();
    move |_| {
        let flights = flights.clone();
        Box::pin(async move {
            let _flight = flights.begin();
            std::future::pending().await
        })
    }
}

type BoxedPoke = std::pin::Pin<Box<dyn Future<Output = PokeOutcome> + Send>>;

#[test]
fn past_its_deadline_a_future_is_dropped_and_costs_nothing() {
    for store in stores() {
        sense_targets(&store, "kind", 10, waits(10, 100_000));
        one_thread().block_on(async {
            let flights = Flights::default();
            let poker = patient(&store)
                .poke_timeout(millis(400))
                .max_hung(2)
                .kind_async("kind".try_into().unwrap(), &Handle::current(), forever(&flights))
                .at_once("kind".try_into().unwrap(), places(5));
            let mut poker = AsyncService::new(poker);
            let report = poker.tick(at(0)).await.unwrap();
            assert_eq!(
                (report.poked, report.overran, report.unreachable, report.backed_off),
                (10, 10, 10, 10)
            );
            assert_eq!((report.hung, report.in_flight, report.waiting, report.held_back), (0, 0, 0, 0));
            assert_eq!((report.late, report.threads), (0, 4));
            assert_eq!(
                (flights.begun(), flights.most(), flights.now()),
                (10, 5, 0),
                "five at once, and all are dropped"
            );
            let report = poker.tick(at(100)).await.unwrap();
            assert_eq!(
                (report.poked, report.overran, flights.begun()),
                (10, 10, 20),
                "and poked again when due"
            );
        });
    }
}

#[test]
fn panics_count_as_unreachable_and_the_others_are_answered() {
    for store in stores() {
        let keys = sense_targets(&store, "kind", 12, waits(10, 100_000));
        one_thread().block_on(async {
            let poke = |request: PokeRequest| {
                let context = request.context;
                assert!(!context.as_str().contains("-2"), "before there is a future");
                async move {
                    tokio::task::yield_now().await;
                    assert!(!context.as_str().contains("-3"), "in the future");
                    PokeOutcome::Landed(None)
                }
            };
            let report = poker_of(patient(&store), poke).tick(at(0)).await.unwrap();
            assert_eq!((report.poked, report.unreachable, report.landed), (12, 2, 10));
        });
        assert_eq!(in_state(&store, &keys, TaskState::Success), 10);
    }
}

#[test]
fn a_wrong_number_of_answers_counts_as_unreachable_for_all() {
    for store in stores() {
        sense_targets(&store, "kind", 3, waits(10, 100_000));
        one_thread().block_on(async {
            let poke = |_: Vec<PokeRequest>| async { vec![PokeOutcome::Landed(None); 2] };
            let runtime = Handle::current();
            let poker =
                patient(&store).kind_many_async("kind".try_into().unwrap(), places(9), &runtime, poke);
            let report = AsyncService::new(poker).tick(at(0)).await.unwrap();
            assert_eq!((report.poked, report.unreachable, report.landed), (3, 3, 0));
        });
    }
}

#[test]
fn a_poker_that_is_dropped_or_leaves_drops_its_futures() {
    for store in stores() {
        let keys = sense_targets(&store, "kind", 300, waits(10, 100_000));
        one_thread().block_on(async {
            let flights = Flights::default();
            let mut poker = poker_of(patient(&store).wait_for_answers(millis(1)), forever(&flights));
            assert_eq!(poker.tick(at(0)).await.unwrap().in_flight, 300);
            until(|| flights.now() == 300).await;
            poker.with(|poker| poker.leave()).await.unwrap().unwrap();
            assert_eq!(flights.now(), 0, "before leaving has ended");

            let mut poker = poker_of(patient(&store).wait_for_answers(millis(1)), forever(&flights));
            assert_eq!(poker.tick(at(1)).await.unwrap().in_flight, 300);
            until(|| flights.begun() == 600).await;
            drop(poker);
            until(|| flights.now() == 0).await;
        });
        assert_eq!(in_state(&store, &keys, TaskState::Sensing), 300, "they wait for the next poker");
    }
}

#[test]
fn a_future_that_blocks_counts_as_hung_until_it_lets_go() {
    for store in stores() {
        sense(&store, 0, "kind", &[("a", "blocks"), ("b", "good")], waits(10, 100_000));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (gate.clone(), pokes.clone());
        let poke = move |request: PokeRequest| {
            let (gate, pokes) = (held.clone(), counted.clone());
            async move {
                if request.context.as_str().contains("blocks") {
                    pokes.fetch_add(1, Ordering::SeqCst);
                    gate.pass();
                    return PokeOutcome::Landed(None);
                }
                PokeOutcome::NotYet
            }
        };
        let mut poker = patient(&store).poke_timeout(secs(1)).max_pause(secs(0)).kind_async(
            "kind".try_into().unwrap(),
            runtime.handle(),
            poke,
        );
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.poked, report.overran, report.hung, report.in_flight), (2, 1, 1, 0));
        for now in 1..=20 {
            let report = poker.tick(at(now)).unwrap();
            assert_eq!((report.hung, report.landed), (1, 0));
        }
        assert_eq!(pokes.load(Ordering::SeqCst), 1, "it is not poked again while it blocks");
        gate.open();
        tick_until(&mut poker, 20, |report| {
            assert_eq!(report.landed, 0, "a late answer changes nothing");
            report.late == 1
        });
        let landed: usize = (21..=40).map(|now| poker.tick(at(now)).unwrap().landed).sum();
        assert_eq!((landed, pokes.load(Ordering::SeqCst)), (1, 2), "then it is");
    }
}

#[test]
fn without_its_runtime_a_target_cannot_be_looked_at() {
    for store in stores() {
        let keys = sense_targets(&store, "kind", 30, waits(10, 100_000));
        let (runtime, flights) = (one_thread(), Flights::default());
        let poker = patient(&store).wait_for_answers(millis(1)).max_pause(secs(0));
        let mut poker = poker
            .kind_async("kind".try_into().unwrap(), runtime.handle(), forever(&flights))
            .at_once("kind".try_into().unwrap(), places(20));
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.in_flight, report.waiting), (20, 10));
        runtime.block_on(until(|| flights.now() == 20));
        drop(runtime);
        assert_eq!(flights.now(), 0);
        let mut unreachable = 0;
        tick_until(&mut poker, 0, |report| {
            unreachable += report.unreachable;
            report.in_flight + report.waiting == 0
        });
        assert_eq!((unreachable, flights.begun()), (30, 20));
        let report = poker.tick(at(20)).unwrap();
        assert_eq!((report.unreachable, report.in_flight), (30, 0), "{report:?}");
        assert_eq!(in_state(&store, &keys, TaskState::Sensing), 30);
    }
}
