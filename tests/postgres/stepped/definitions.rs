//! After a definition was confirmed, no later commit grants against it.

use std::sync::mpsc::channel;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Drain, IfExists, Subject};
use stationmaster::store::Tx;
use stationmaster::store::postgres;
use stationmaster::{NewTask, Result};

use super::hand::{Hand, until_one_waits};
use super::open_tick::OpenTick;
use super::scene::{Scene, key, now};
use crate::scratch::with_client;
use crate::{pool, pool_name};

/// Changes a definition, and tells how much of it is taken.
type Define = fn(&mut Tx<'_>) -> Result<String>;

/// With how many of the four tasks each lets be admitted. A tick in flight has taken two.
const DEFINITIONS: [(&str, Define, usize); 5] = [
    ("no slots", |tx| resize(tx, 0), 0),
    ("a shrink", |tx| resize(tx, 1), 1),
    ("a limit", |tx| limit(tx, LimitSpec::new("few".try_into()?, 2)?), 2),
    ("a family", |tx| limit(tx, LimitSpec::new("fe".try_into()?, 2)?.family()), 2),
    ("a pause", pause, 0),
];

fn pause(tx: &mut Tx<'_>) -> Result<String> {
    tx.pause(&[Subject::Key("few".try_into()?)])?;
    tx.pools(&[pool_name("narrow")]).map(|mut pools| pools.remove(0).unwrap().used.to_string())
}

fn resize(tx: &mut Tx<'_>, slots: u32) -> Result<String> {
    tx.define([pool("narrow", slots)], IfExists::Replace)?;
    tx.pools(&[pool_name("narrow")]).map(|mut pools| pools.remove(0).unwrap().used.to_string())
}

fn limit(tx: &mut Tx<'_>, spec: LimitSpec) -> Result<String> {
    tx.define([spec], IfExists::Replace)?;
    tx.limits(&["few".try_into()?]).map(|mut limits| limits.remove(0).unwrap().used.to_string())
}

/// Four tasks of a pool with four slots.
fn scene() -> Scene {
    let scene = Scene::new();
    let new = |name: &str| NewTask::new(key(name)).pool(pool_name("narrow")).limit("few".try_into().unwrap());
    let tasks = ["a", "b", "c", "d"].map(new);
    let put = scene.store.write(|tx| {
        tx.define([pool("narrow", 4)], IfExists::Replace)?;
        tx.enqueue(now(), &tasks)
    });
    put.unwrap();
    scene
}

#[test]
fn a_pause_waits_for_the_tick_in_flight() {
    for (what, define, _) in DEFINITIONS {
        let scene = scene();
        let tick = OpenTick::begin(&scene, now(), 2);
        let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        host.call(define).waits();
        assert_eq!(tick.commit(), 2, "{what}");
        assert_eq!(host.rest().done(), "2", "{what}: it sees what the tick took");
        host.commit();
        assert_eq!(scene.tick(10).len(), 0, "{what} was confirmed");
        scene.audit();
    }
}

#[test]
fn a_tick_waits_for_an_open_definition() {
    for (what, define, room) in DEFINITIONS {
        for (commits, granted) in [(true, room), (false, 4)] {
            let scene = scene();
            let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
            assert_eq!(host.call(define).done(), "0");
            std::thread::scope(|scope| {
                let tick = scope.spawn(|| scene.tick(10).len());
                until_one_waits(&scene.scratch.0);
                host.sql(if commits { "COMMIT" } else { "ROLLBACK" }).done();
                assert_eq!(tick.join().unwrap(), granted, "{what}, committed: {commits}");
            });
            scene.audit();
        }
    }
}

/// Any reader that sees the pause also sees what the ticks before it granted.
#[test]
fn a_drain_knows_the_tick_that_a_pause_waited_for() {
    let scene = scene();
    let few = [Subject::Key("few".try_into().unwrap())];
    let drain = || scene.store.read(|tx| tx.drain(&few)).unwrap()[0];
    let tick = OpenTick::begin(&scene, now(), 2);
    let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    host.call(pause).waits();
    assert_eq!(drain(), Drain::Open, "it is not committed");
    assert_eq!(tick.commit(), 2);
    host.rest().done();
    host.commit();
    assert_eq!(drain(), Drain::Draining { leases: 2 });
    assert_eq!(scene.tick(10).len(), 0);
    scene.audit();
}

/// The second looks again once it has the lock.
#[test]
fn of_two_that_define_at_once_the_second_leaves_what_the_first_did() {
    let scene = scene();
    let define = |slots| {
        move |tx: &mut Tx<'_>| {
            tx.define([pool("new", slots)], IfExists::Leave).map(|defined| format!("{defined:?}"))
        }
    };
    let [first, second] = [0, 1].map(|_| Hand::begin(&scene.scratch.0, "READ COMMITTED"));
    assert_eq!(first.call(define(1)).done(), "[Created]");
    second.call(define(2)).waits();
    first.commit();
    assert_eq!(second.rest().done(), "[Left]");
    second.commit();
    let pools = scene.store.read(|tx| tx.pools(&[pool_name("new")])).unwrap();
    assert_eq!(pools[0].as_ref().unwrap().spec, pool("new", 1));
}

/// A rollback to a savepoint gives the tick lock up, and the handle is not told.
#[test]
fn the_lock_is_taken_again_after_a_savepoint() {
    let scene = scene();
    let schema = scene.scratch.0.clone();
    let (defined, was_defined) = channel();
    let (undo, is_to_undo) = channel::<()>();
    let (undone, was_undone) = channel();
    let (again, is_to_go_on) = channel::<()>();
    std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            with_client(move |client| async move {
                client.batch_execute("BEGIN; SAVEPOINT before").await.unwrap();
                let (tx, serving) = postgres::attach(&client, &schema);
                let body = std::thread::spawn(move || {
                    let mut tx = tx.tx();
                    defined.send(resize(&mut tx, 3).unwrap()).unwrap();
                    is_to_go_on.recv().unwrap();
                    resize(&mut tx, 1).unwrap()
                });
                let undoing = async {
                    tokio::task::spawn_blocking(move || is_to_undo.recv().unwrap()).await.unwrap();
                    client.batch_execute("ROLLBACK TO SAVEPOINT before").await.unwrap();
                    undone.send(()).unwrap();
                };
                tokio::join!(serving, undoing);
                client.batch_execute("COMMIT").await.unwrap();
                body.join().unwrap()
            })
        });
        assert_eq!(was_defined.recv().unwrap(), "0");
        undo.send(()).unwrap();
        was_undone.recv().unwrap();
        let tick = OpenTick::begin(&scene, now(), 2);
        again.send(()).unwrap();
        until_one_waits(&scene.scratch.0);
        assert_eq!(tick.commit(), 2);
        assert_eq!(host.join().unwrap(), "2", "what the tick took");
    });
    assert_eq!(scene.tick(10).len(), 0);
    scene.audit();
}
