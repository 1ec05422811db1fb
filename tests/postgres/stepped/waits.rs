//! While a host's transaction is open, only transactions that want the same task wait for it.

use std::sync::Arc;

use stationmaster::Timestamp;
use stationmaster::admission::IfExists;
use stationmaster::service::{Admitter, Service, Upkeep};

use super::hand::{Hand, Step, until_one_waits};
use super::scene::{LEVELS, Scene, VERBS, Verb, later, now, task};
use crate::{pool, pool_name};

/// The task of a verb beside an open one.
fn name(level: &str, open: Verb, other: Option<Verb>) -> String {
    format!("{level} {open:?} {other:?}")
}

fn lease_of(scene: &Scene, verb: Verb, name: &str) -> Option<stationmaster::LeaseRef> {
    verb.has_lease().then(|| scene.lease(name))
}

#[test]
fn whoever_is_open_others_pass() {
    let scene = Scene::new();
    let mut needed = Vec::new();
    for level in LEVELS {
        for open in VERBS {
            needed.push((open, name(level, open, None)));
            needed.extend(VERBS.map(|other| (other, name(level, open, Some(other)))));
        }
    }
    scene.prepare(&needed);
    for level in LEVELS {
        for open in VERBS {
            let mine = name(level, open, None);
            let lease = lease_of(&scene, open, &mine);
            let host = Hand::begin(&scene.scratch.0, level);
            host.call(move |tx| open.call(tx, &mine, lease)).done();
            let others = Hand::new(&scene.scratch.0);
            for other in VERBS {
                let theirs = name(level, open, Some(other));
                let lease = lease_of(&scene, other, &theirs);
                others.sql("BEGIN").done();
                let step = others.call(move |tx| other.call(tx, &theirs, lease));
                assert!(matches!(step, Step::Done(Ok(_))), "{level}: {other:?} beside {open:?}: {step:?}");
                others.sql("COMMIT").done();
            }
            scene.audit();
            host.rollback();
            scene.audit();
        }
    }
}

#[test]
fn services_pass_whoever_is_open() {
    for level in LEVELS {
        let scene = Scene::new();
        let named = VERBS.map(|verb| (verb, name(level, verb, None)));
        scene.prepare(&named);
        let hosts: Vec<Hand> = named
            .iter()
            .map(|(verb, name)| {
                let host = Hand::begin(&scene.scratch.0, level);
                let (verb, name, lease) = (*verb, name.clone(), lease_of(&scene, *verb, name));
                host.call(move |tx| verb.call(tx, &name, lease)).done();
                host
            })
            .collect();
        // A tick grants what is free, however many rows hosts have locked.
        let free = scene.admitted(&["free"]);
        assert_eq!(free.len(), 1);
        scene.store.write(|tx| tx.finish(now(), &[stationmaster::ops::Finish::success(free[0])])).unwrap();
        let store = Arc::new(scene.scratch.open(|options| options));
        Upkeep::new(store).tick(now()).unwrap();
        scene
            .store
            .write(|tx| {
                tx.forget_ended(now() + std::time::Duration::from_secs(1), std::time::Duration::ZERO, 10)
            })
            .unwrap();
        scene.audit();
        for host in hosts {
            let step = host.sql("COMMIT");
            // The server may find that serializable hosts conflict, though they name different tasks.
            let is_conflict = matches!(&step, Step::Done(Err(code)) if code == "40001");
            assert!(
                matches!(step, Step::Done(Ok(_))) || (is_conflict && level == "SERIALIZABLE"),
                "{step:?}"
            );
        }
        scene.audit();
    }
}

/// Only ticks wait for it.
#[test]
fn all_but_ticks_pass_an_open_definition() {
    let scene = Scene::new();
    let needed = VERBS.map(|verb| (verb, name("READ COMMITTED", verb, None)));
    scene.prepare(&needed);
    let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    host.call(|tx| tx.define([pool("other", 1)], IfExists::Replace).map(|_| String::new())).done();
    let others = Hand::new(&scene.scratch.0);
    for (verb, name) in needed {
        let lease = lease_of(&scene, verb, &name);
        others.sql("BEGIN").done();
        let step = others.call(move |tx| verb.call(tx, &name, lease));
        assert!(matches!(step, Step::Done(Ok(_))), "{verb:?}: {step:?}");
        others.sql("COMMIT").done();
    }
    std::thread::scope(|scope| {
        let tick = scope.spawn(|| scene.tick(10).len());
        until_one_waits(&scene.scratch.0);
        host.rollback();
        assert!(tick.join().unwrap() > 0);
    });
    scene.audit();
}

/// How many ticks an admitter makes before it waits for its longest pause or for a wake-up.
fn ticks_until_it_waits(admitter: &mut Admitter, now: Timestamp) -> (usize, usize) {
    let (mut ticks, mut granted) = (0, 0);
    loop {
        let report = admitter.tick(now).unwrap();
        (ticks, granted) = (ticks + 1, granted + report.granted.len());
        assert!(ticks < 9, "it spins: {report:?}");
        if report.next_due.is_none_or(|due| due > now) {
            return (ticks, granted);
        }
    }
}

/// A look cannot see that a row is locked: it finds work, and a tick then finds nothing to grant.
#[test]
fn the_only_task_is_locked() {
    for (what, new, at) in [("ready", task("a"), now()), ("due", task("a").not_before(later(5)), later(9))] {
        let scene = Scene::new();
        scene.store.write(|tx| tx.enqueue(now(), std::slice::from_ref(&new))).unwrap();
        let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        host.call(|tx| Verb::CancelReady.call(tx, "a", None)).done();
        let store = Arc::new(scene.scratch.open(|options| options));
        let mut admitter = Admitter::new(store, "h".try_into().unwrap());
        for round in 0..5 {
            assert_eq!(ticks_until_it_waits(&mut admitter, at), (1, 0), "{what}, round {round}");
        }
        let free = || task("free").pool(pool_name("wide"));
        scene.store.write(|tx| tx.enqueue(at, &[free()])).unwrap();
        assert_eq!(ticks_until_it_waits(&mut admitter, at).1, 1, "{what}: what is free is granted");
        host.rollback();
        assert_eq!(ticks_until_it_waits(&mut admitter, at).1, 1, "{what}: and then what was locked");
        scene.audit();
    }
}
