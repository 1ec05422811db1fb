//! Async pokes that behave.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use stationmaster::TaskState;
use stationmaster::clock::SystemClock;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{LoopHandle, PokeRequest};
use stationmaster::tokio::{AsyncService, drive};
use tokio::runtime::Handle;
use tokio::sync::{Barrier, Notify};

use crate::fleet::*;
use crate::scene::*;
use crate::stores::stores;

#[test]
fn five_thousand_are_in_flight_at_once_on_one_thread() {
    const TARGETS: usize = 5_000;
    for store in stores() {
        let keys = sense_targets(&store, "kind", TARGETS, waits(10, 1_000));
        one_thread().block_on(async {
            let (flights, all) = (Flights::default(), Arc::new(Barrier::new(TARGETS)));
            let (counted, thread) = (flights.clone(), std::thread::current().id());
            let poke = move |_| {
                let (flights, all) = (counted.clone(), all.clone());
                async move {
                    let _flight = flights.begin();
                    // No thread gets past this before all are there.
                    all.wait().await;
                    tokio::time::sleep(millis(50)).await;
                    assert_eq!(std::thread::current().id(), thread);
                    PokeOutcome::Landed(None)
                }
            };
            let poker = patient(&store)
                .kind_async("kind".try_into().unwrap(), &Handle::current(), poke)
                .at_once("kind".try_into().unwrap(), places(6_000));
            let mut poker = AsyncService::new(poker);
            let report = poker.tick(at(0)).await.unwrap();
            assert_eq!((report.poked, report.landed, report.unreachable), (TARGETS, TARGETS, 0));
            assert_eq!((flights.begun(), flights.most(), flights.now()), (TARGETS, TARGETS, 0));
            assert_eq!((report.in_flight, report.waiting, report.hung), (0, 0, 0));
        });
        assert_eq!(in_state(&store, &keys, TaskState::Success), TARGETS);
    }
}

#[test]
fn a_kind_has_as_many_in_flight_as_its_limit_says() {
    const LIMIT: usize = 7;
    for store in stores() {
        sense_targets(&store, "kind", 14 * LIMIT, waits(10, 1_000));
        sense_targets(&store, "other", 1_500, waits(10, 1_000));
        one_thread().block_on(async {
            let (flights, others) = (Flights::default(), Flights::default());
            let (counted, seven) = (flights.clone(), Arc::new(Barrier::new(LIMIT)));
            let poke = move |_| {
                let (flights, seven) = (counted.clone(), seven.clone());
                async move {
                    let _flight = flights.begin();
                    seven.wait().await;
                    tokio::task::yield_now().await;
                    PokeOutcome::NotYet
                }
            };
            let (counted, thousand) = (others.clone(), Arc::new(Barrier::new(500)));
            let other = move |_| {
                let (flights, thousand) = (counted.clone(), thousand.clone());
                async move {
                    let _flight = flights.begin();
                    thousand.wait().await;
                    PokeOutcome::NotYet
                }
            };
            let poker = patient(&store)
                .kind_async("kind".try_into().unwrap(), &Handle::current(), poke)
                .kind_async("other".try_into().unwrap(), &Handle::current(), other)
                .at_once("kind".try_into().unwrap(), places(LIMIT));
            let report = AsyncService::new(poker).tick(at(0)).await.unwrap();
            assert_eq!((report.poked, report.unreachable), (14 * LIMIT + 1_500, 0));
            assert_eq!((flights.begun(), flights.most()), (14 * LIMIT, LIMIT));
            assert_eq!(others.begun(), 1_500);
            assert!(others.most() <= 1_000, "the limit that holds where none is set: {}", others.most());
        });
    }
}

#[test]
fn what_is_queued_behind_a_limit_is_launched_without_a_tick() {
    for store in stores() {
        sense_targets(&store, "kind", 20, waits(10, 1_000));
        one_thread().block_on(async {
            let (flights, told) = (Flights::default(), Arc::new(Notify::new()));
            let (counted, notified) = (flights.clone(), told.clone());
            let poke = move |_| {
                let (flights, told) = (counted.clone(), notified.clone());
                async move {
                    let _flight = flights.begin();
                    if flights.begun() <= 2 {
                        told.notified().await;
                    }
                    PokeOutcome::NotYet
                }
            };
            let poker = patient(&store)
                .wait_for_answers(millis(1))
                .kind_async("kind".try_into().unwrap(), &Handle::current(), poke)
                .at_once("kind".try_into().unwrap(), places(2));
            let mut poker = AsyncService::new(poker);
            let report = poker.tick(at(0)).await.unwrap();
            assert_eq!((report.poked, report.in_flight, report.waiting), (0, 2, 18));
            until(|| flights.begun() == 2).await;
            told.notify_waiters();
            until(|| flights.begun() == 20).await;
            assert_eq!(flights.most(), 2);
            assert_eq!(poker.tick(at(0)).await.unwrap().poked, 20);
        });
    }
}

#[test]
fn batches_take_what_is_due_and_answer_each() {
    for store in stores() {
        let keys = sense_targets(&store, "kind", 10, waits(10, 1_000));
        one_thread().block_on(async {
            let batches: Arc<Mutex<Vec<usize>>> = Arc::default();
            let seen = batches.clone();
            let poke = move |requests: Vec<PokeRequest>| {
                seen.lock().push(requests.len());
                async move {
                    tokio::task::yield_now().await;
                    let answer = |request: &PokeRequest| match request.context.as_str().contains("-3") {
                        true => PokeOutcome::NotYet,
                        false => PokeOutcome::Landed(Some(request.context.as_str().to_owned())),
                    };
                    requests.iter().map(answer).collect::<Vec<PokeOutcome>>()
                }
            };
            let runtime = Handle::current();
            let poker =
                patient(&store).kind_many_async("kind".try_into().unwrap(), places(4), &runtime, poke);
            let report = AsyncService::new(poker).tick(at(0)).await.unwrap();
            assert_eq!((report.poked, report.landed), (10, 9));
            // Each batch is a task of the runtime, which may begin them in any order.
            let mut batches = batches.lock().clone();
            batches.sort_unstable();
            assert_eq!(batches, [2, 4, 4]);
        });
        let tasks = store.read(|tx| tx.tasks(&keys)).unwrap();
        for task in tasks.into_iter().flatten().filter(|task| task.state == TaskState::Success) {
            let value = task.value.unwrap();
            assert!(
                value.contains(&format!("\"{}\"", task.key.task)),
                "{value} is the answer of {}",
                task.key
            );
        }
    }
}

#[test]
fn kinds_of_both_sorts_do_not_hold_up_each_other() {
    for store in stores() {
        let blocking = sense_targets(&store, "blocking", 20, waits(10, 1_000));
        let futures = sense_targets(&store, "kind", 20, waits(10, 1_000));
        one_thread().block_on(async {
            // The threads wait for the futures, and half of these for the threads.
            let (threads, landed) = (Arc::new(Gate::default()), Arc::new(Notify::new()));
            let done: Arc<Mutex<HashSet<String>>> = Arc::default();
            let (gate, told, names) = (threads.clone(), landed.clone(), done.clone());
            let block = move |request: &PokeRequest| {
                gate.pass();
                names.lock().insert(request.context.as_str().to_owned());
                told.notify_waiters();
                PokeOutcome::Landed(None)
            };
            let (first, begun) = (Flights::default(), threads.clone());
            let poke = move |request: PokeRequest| {
                let (flights, gate, done, landed) =
                    (first.clone(), begun.clone(), done.clone(), landed.clone());
                async move {
                    let _flight = flights.begin();
                    if flights.begun() == 20 {
                        gate.open();
                    }
                    if !request.context.as_str().contains("-1") {
                        return PokeOutcome::Landed(None);
                    }
                    loop {
                        let told = landed.notified();
                        if done.lock().len() == 20 {
                            return PokeOutcome::Landed(None);
                        }
                        told.await;
                    }
                }
            };
            let poker = patient(&store).threads(2).kind("blocking".try_into().unwrap(), block).kind_async(
                "kind".try_into().unwrap(),
                &Handle::current(),
                poke,
            );
            let report = AsyncService::new(poker).tick(at(0)).await.unwrap();
            assert_eq!((report.landed, report.threads, report.hung), (40, 2, 0));
        });
        assert_eq!(in_state(&store, &blocking, TaskState::Success), 20);
        assert_eq!(in_state(&store, &futures, TaskState::Success), 20);
    }
}

#[test]
fn an_answer_reaches_only_those_that_were_known_when_its_poke_began() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "target"), ("old", "target")], waits(10, 1_000));
        one_thread().block_on(async {
            let (flights, answer) = (Flights::default(), Arc::new(Notify::new()));
            let (counted, notified) = (flights.clone(), answer.clone());
            let poke = move |_| {
                let (flights, answer) = (counted.clone(), notified.clone());
                async move {
                    let _flight = flights.begin();
                    if flights.begun() > 1 {
                        return PokeOutcome::NotYet;
                    }
                    answer.notified().await;
                    PokeOutcome::Landed(Some("first".into()))
                }
            };
            let mut poker = poker_of(patient(&store).wait_for_answers(millis(1)), poke);
            assert_eq!(poker.tick(at(0)).await.unwrap().in_flight, 1);
            until(|| flights.begun() == 1).await;
            register_again(&store, 1, ("t", "target"), waits(10, 1_000));
            sense(&store, 1, "kind", &[("joins", "target")], waits(10, 1_000));
            let report = poker.tick(at(1)).await.unwrap();
            assert!(
                report.loaded >= 2 && report.in_flight == 1 && flights.begun() == 1,
                "it is not poked again yet"
            );
            answer.notify_one();
            let mut landed = 0;
            while landed == 0 {
                landed += poker.tick(at(1)).await.unwrap().landed;
            }
            assert_eq!(landed, 1);
            assert_eq!(state(&store, "old"), TaskState::Success);
            assert_eq!(
                (state(&store, "t"), state(&store, "joins")),
                (TaskState::Sensing, TaskState::Sensing)
            );
            until(|| flights.now() == 0).await;
            while flights.begun() < 2 {
                poker.tick(at(2)).await.unwrap();
            }
        });
    }
}

#[test]
fn an_answer_that_no_tick_waits_for_wakes_the_loop() {
    for store in stores() {
        let keys = sense_targets(&store, "kind", 3, waits(100_000, 200_000));
        one_thread().block_on(async {
            let handle = LoopHandle::new();
            let (told, asked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let notified = told.clone();
            let poke = move |_| {
                let told = notified.clone();
                async move {
                    told.notified().await;
                    PokeOutcome::Landed(None)
                }
            };
            // Nothing else would have the loop tick within the hour.
            let hour = secs(3_600);
            let poker = patient(&store).wait_for_answers(millis(1)).poke_timeout(hour).refresh_every(hour);
            let mut poker = poker_of(poker, poke);
            let (ticked, mut landed) = (asked.clone(), 0);
            let run = drive(&mut poker, &SystemClock, &handle, hour, |report| {
                landed += report.unwrap().landed;
                ticked.notify_one();
                if landed == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let tell = async {
                asked.notified().await;
                told.notify_waiters();
            };
            let (ended, ()) = tokio::join!(run, tell);
            ended.unwrap();
        });
        assert_eq!(in_state(&store, &keys, TaskState::Success), 3);
    }
}

#[test]
fn a_future_is_dropped_at_the_operators_bound_and_when_nobody_waits_any_more() {
    for store in stores() {
        let ages = secs(1_000_000);
        sense(&store, 0, "kind", &[("long", "long")], waits(10, 10_000_000).poke_timeout(ages).unwrap());
        sense(&store, 0, "kind", &[("short", "short")], waits(1, 1).poke_timeout(ages).unwrap());
        one_thread().block_on(async {
            let flights = Flights::default();
            let counted = flights.clone();
            let poke = move |_| {
                let flights = counted.clone();
                async move {
                    let _flight = flights.begin();
                    std::future::pending::<()>().await;
                    PokeOutcome::NotYet
                }
            };
            let poker = patient(&store)
                .wait_for_answers(millis(1))
                .poke_timeout(millis(200))
                .max_poke_timeout(secs(10));
            let mut poker = poker_of(poker, poke);
            while flights.now() < 2 {
                poker.tick(at(0)).await.unwrap();
            }
            let began = std::time::Instant::now();
            while state(&store, "short") == TaskState::Sensing {
                assert!(began.elapsed() < secs(60), "it never times out");
                poker.tick(at(2)).await.unwrap();
            }
            assert_eq!(flights.begun(), 2);
            // That of the sensor that has ended first, then the other.
            for left in [1, 0] {
                while flights.now() > left {
                    assert!(began.elapsed() < secs(60), "{} futures live on", flights.now());
                    poker.tick(at(2)).await.unwrap();
                }
                assert_eq!(flights.now(), left);
            }
            assert_eq!(state(&store, "long"), TaskState::Sensing);
        });
    }
}
