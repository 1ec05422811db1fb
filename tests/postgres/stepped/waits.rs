//! While a host's transaction is open, nobody waits for it but who wants the same task.

use stationmaster::service::{Reaper, Service};

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, VERBS, Verb, now};

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
        let store = std::sync::Arc::new(scene.scratch.open(|options| options));
        Reaper::new(store).tick(now()).unwrap();
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
