//! Every operation of an async store, dropped after its first poll, its second, … until it is done untouched.

use std::pin::Pin;
use std::sync::Arc;

use stationmaster::admission::Ageing;
use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::lease::LeaseRef;
use stationmaster::ops::StopBeforeStart;
use stationmaster::ops::{AdmitRequest, Finish, Mark};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{ActiveQuery, RunBeat, RunClose, RunRecord, RunStatus, SeriesBy};
use stationmaster::sensor::{EndReason, NewSensor, SmartSensorConfig};
use stationmaster::store::Store;
use stationmaster::store::contract::Ending;
use stationmaster::task::TaskState;
use stationmaster::tokio::AsyncStore;
use stationmaster::{Error, NewTask, TaskKey};
use tokio::sync::Notify;

use crate::cut::*;
use crate::fleet::places;
use crate::scene::{Gate, at, key, secs, waits};
use crate::stores::{Kind, kinds};

/// What the operations are called on.
#[derive(Clone)]
pub struct World {
    pub keys: Vec<TaskKey>,
    queued: LeaseRef,
    running: LeaseRef,
    other: LeaseRef,
    sensing: LeaseRef,
    ended: TaskKey,
}

fn sensor(lease: LeaseRef) -> NewSensor {
    let context = PokeContext::from_json(r#"{"target":"t"}"#).unwrap();
    NewSensor::new(lease, "kind".try_into().unwrap(), context, waits(10, 1_000))
}

/// Tasks in every state, an event, and a run that is watched.
pub fn world(store: &Arc<dyn Store>) -> World {
    let keys: Vec<TaskKey> = ["queued", "running", "other", "sensing", "ended", "told", "ready", "new"]
        .into_iter()
        .map(key)
        .collect();
    let order = AdmitRequest::new("h".try_into().unwrap(), "first".try_into().unwrap(), 6, secs(60));
    let new: Vec<NewTask> = keys[..7].iter().cloned().map(NewTask::new).collect();
    let watched = RunRecord::open(run("watched"), at(0)).heartbeat(at(0));
    let leases = store
        .write(|tx| {
            tx.define([PoolSpec::new("default_pool", Slots::Limited(7))?], IfExists::Replace)?;
            tx.enqueue(at(0), &new)?;
            let granted = tx.admit(at(0), &order)?.granted;
            Ok(granted.iter().map(|task| task.lease_ref()).collect::<Vec<LeaseRef>>())
        })
        .unwrap();
    store
        .write(|tx| {
            tx.start(at(0), &leases[1..])?;
            tx.register(at(0), &[sensor(leases[3]), sensor(leases[5])])?;
            tx.mark(at(0), &[Mark::new(keys[4].clone(), TaskState::Failed, "for a start")])?;
            tx.end_sensors(at(0), &[(leases[5], Ending::new(EndReason::Landed, TaskState::Success))])?;
            tx.record_runs(std::slice::from_ref(&watched), StopBeforeStart::Reject)
        })
        .unwrap();
    let [queued, running, other, sensing, ..] = leases[..] else { panic!("six are admitted") };
    World { ended: keys[4].clone(), keys, queued, running, other, sensing }
}

type Answer = Pin<Box<dyn Future<Output = Result<String, Error>>>>;
type Operation = (&'static str, fn(AsyncStore, World) -> Answer);

/// An operation, with what it answers as text.
macro_rules! operations {
    ($($name:literal: |$store:ident, $world:ident| $call:expr;)+) => {
        vec![$(($name, |$store, $world| {
            let _ = &$world;
            Box::pin(async move { Ok(format!("{:?}", $call)) })
        })),+]
    };
}

pub fn operations() -> Vec<Operation> {
    operations! {
        "read": |store, world| store.read(|tx| tx.all_pools()).await?;
        "write": |store, world| store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Replace)).await?;
        "enqueue": |store, world| store.write(|tx| tx.enqueue(at(1), &[NewTask::new(key("new"))])).await?;
        "enqueue_ageing": |store, world| {
            let ageing = Ageing::Linear { period: std::time::Duration::from_secs(60) };
            store.write(move |tx| tx.enqueue_ageing(at(1), ageing, &[NewTask::new(key("new"))])).await?
        };
        "admit": |store, world| {
            let order = AdmitRequest::new("h".try_into()?, "second".try_into()?, 9, secs(60));
            store.write(move |tx| tx.admit(at(1), &order)).await?.granted
        };
        "start": |store, world| store.write(move |tx| tx.start(at(1), &[world.queued])).await?;
        "renew": |store, world| {
            store.write(move |tx| tx.renew(at(1), secs(60), &[world.queued, world.running])).await?
        };
        "finish": |store, world| {
            let ends = [Finish::success(world.running), Finish::failed(world.other, "no")];
            store.write(move |tx| tx.finish(at(1), &ends)).await?
        };
        "register": |store, world| store.write(move |tx| tx.register(at(1), &[sensor(world.running)])).await?;
        "register_with": |store, world| {
            let config = SmartSensorConfig::default();
            store.write(move |tx| tx.register_with(at(1), &config, &[sensor(world.running)])).await?
        };
        "clear": |store, world| {
            let keys = [world.ended.clone()];
            store.write(move |tx| tx.clear(at(1), &keys)).await?
        };
        "mark": |store, world| {
            let marks = [&world.keys[0], &world.keys[3]].map(|key| Mark::new(key.clone(), TaskState::Skipped, "m"));
            store.write(move |tx| tx.mark(at(1), &marks)).await?
        };
        "reap": |store, world| store.write(|tx| tx.reap(at(1_000), 9)).await?;
        "end_sensors": |store, world| {
            let ends = [(world.sensing, Ending::new(EndReason::Landed, TaskState::Success))];
            store.write(move |tx| tx.end_sensors(at(1), &ends)).await?
        };
        "explain": |store, world| store.read(|tx| tx.explain(at(0), &[key("ready")])).await?;
        "preview": |store, world| {
            let order = AdmitRequest::new("h".try_into()?, "second".try_into()?, 9, secs(60));
            store.read(move |tx| tx.preview(at(1), &order)).await?.granted
        };
        "positions": |store, world| store.read(|tx| tx.positions(&[key("ready"), key("new")], 9)).await?;
        "feed": |store, world| store.read(|tx| tx.feed(0, 10)).await?;
        "delete_consumers": |store, world| store.write(|tx| tx.delete_consumers(&["c".try_into()?])).await?;
        "audit": |store, world| store.read(|tx| tx.audit()).await?;
        "record_runs": |store, world| {
            let runs = [RunRecord::open(run("new"), at(1))];
            store.write(move |tx| tx.record_runs(&runs, StopBeforeStart::Reject)).await?
        };
        "stop_runs": |store, world| {
            let stops = [RunClose::new(run("watched"), at(1), RunStatus::Completed)];
            store.write(move |tx| tx.stop_runs(&stops, StopBeforeStart::Reject)).await?
        };
        "beat_runs": |store, world| {
            store.write(|tx| tx.beat_runs(&[RunBeat::new(run("watched"), at(1))])).await?
        };
        "close_silent_runs": |store, world| {
            store.write(move |tx| tx.close_silent_runs(at(1_000), secs(90), RunStatus::Killed, 9)).await?
        };
        "active_runs": |store, world| store.read(|tx| tx.active_runs(&ActiveQuery::new(at(0), at(9)))).await?;
        "run_series": |store, world| {
            let query = ActiveQuery::new(at(0), at(9));
            store.read(move |tx| tx.run_series(&query, secs(1), SeriesBy::Namespace, at(9))).await?
        };
    }
}

/// How an operation finds the store.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Others {
    /// At rest.
    None,
    /// Another call has the only place, until the operation was polled once.
    OneAtWork,
}

/// What an operation does when it is not dropped.
struct Untouched {
    before: Seen,
    after: Seen,
    answer: String,
}

impl Untouched {
    fn of(operation: Operation, kind: &Kind) -> Self {
        let store = kind.shared();
        let world = world(&store);
        let before = look(&store, &world.keys);
        let calls = AsyncStore::new(store.clone());
        let answer = in_order().block_on(operation.1(calls, world.clone())).unwrap();
        Self { before, after: look(&store, &world.keys), answer }
    }
}

/// Drops the operation after this many polls, and checks the store. Returns true if the operation was done by
/// then.
fn dropped_after(
    polls: usize,
    (name, operation): Operation,
    kind: &Kind,
    others: Others,
    whole: &Untouched,
) -> bool {
    let store = &kind.shared();
    let world = world(store);
    let (runtime, context) = (in_order(), format!("{name}, {polls} polls, {others:?}, {}", kind.name));
    runtime.block_on(async {
        let calls = AsyncStore::new(store.clone()).at_once(places(1));
        let (gate, at_work) = (Arc::new(Gate::default()), Arc::new(Notify::new()));
        let (held, told, busy) = (gate.clone(), at_work.clone(), calls.clone());
        if others == Others::OneAtWork {
            let hold = move || {
                told.notify_one();
                held.pass();
                Ok(())
            };
            // One of each mode: whatever the operation does, it finds no place.
            tokio::spawn(async move {
                let also = hold.clone();
                let (read, wrote) = tokio::join!(busy.read(move |_| also()), busy.write(move |_| hold()));
                read.and(wrote).unwrap();
            });
            at_work.notified().await;
        }
        let open = || gate.open();
        let answer = cut(polls, open, operation(calls.clone(), world.clone())).await;
        all_work_done().await;
        let now = look(store, &world.keys);
        match &answer {
            Some(answer) => {
                assert_eq!(answer.as_ref().unwrap(), &whole.answer, "{context}");
                now.must_be(&whole.after, &context);
            }
            None if others == Others::OneAtWork && polls == 1 => now.must_be(&whole.before, &context),
            None => now.must_be(&whole.after, &context),
        }
        // The handle goes on, and a second call doubles nothing.
        operation(calls, world.clone()).await.unwrap();
        look(store, &world.keys).must_be(&whole.after, &format!("{context}, called again"));
        answer.is_some()
    })
}

#[test]
fn every_operation_dropped_at_every_poll_is_whole_or_was_not_begun() {
    for kind in &kinds() {
        for operation in operations() {
            let whole = Untouched::of(operation, kind);
            for others in [Others::None, Others::OneAtWork] {
                let polls = (1..=10).find(|polls| dropped_after(*polls, operation, kind, others, &whole));
                let awaits = match others {
                    Others::None => 1,
                    Others::OneAtWork => 2,
                };
                assert_eq!(polls, Some(awaits + 1), "{}: as many drops as awaits", operation.0);
            }
        }
    }
}
