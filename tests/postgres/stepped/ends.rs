//! One lease ends once, in whatever order two transactions end it.

use std::time::Duration;

use stationmaster::ops::{Finish, Finished};
use stationmaster::{LeaseRef, TaskState};

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, Verb, key, now};

/// The ways to end a lease.
const ENDS: [Verb; 5] = [Verb::Succeed, Verb::Retry, Verb::GiveBack, Verb::Register, Verb::CancelLeased];

fn name(level: &str, first: Verb, second: Verb, commits: bool) -> String {
    format!("{level} {first:?} {second:?} {commits}")
}

fn begin_running(scene: &Scene, name: &str) -> LeaseRef {
    let lease = scene.lease(name);
    scene.store.write(|tx| tx.start(now(), &[lease])).unwrap();
    lease
}

/// Each pair of ends, at each level, with the first committed or rolled back while the second waits for it.
#[test]
fn all_pairs_of_two_ends() {
    let scene = Scene::new();
    let mut names = Vec::new();
    for level in LEVELS {
        for first in ENDS {
            for second in ENDS {
                names.extend([true, false].map(|commits| name(level, first, second, commits)));
            }
        }
    }
    scene.admitted(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for level in LEVELS {
        for (first, second) in ENDS.iter().flat_map(|first| ENDS.map(|second| (*first, second))) {
            for commits in [true, false] {
                let of = name(level, first, second, commits);
                let lease = begin_running(&scene, &of);
                let one = Hand::begin(&scene.scratch.0, level);
                let two = Hand::begin(&scene.scratch.0, level);
                two.sql("SELECT 1").done();
                let (mine, theirs) = (of.clone(), of.clone());
                one.call(move |tx| first.call(tx, &mine, Some(lease))).done();
                two.call(move |tx| second.call(tx, &theirs, Some(lease))).waits();
                if commits {
                    one.commit();
                } else {
                    one.rollback();
                }
                match two.rest() {
                    Step::Done(Ok(_)) => two.commit(),
                    Step::Done(Err(error)) => {
                        assert!(commits && level != "READ COMMITTED", "{of}: {error}");
                        assert!(error.starts_with("Conflict"), "{of}: {error}");
                        two.rollback();
                    }
                    Step::Waits(_) => unreachable!(),
                }
                assert_ne!(scene.task(&of).state, TaskState::Running, "{of}");
                scene.audit();
            }
        }
    }
}

/// The reaper passes over a lease that a host is ending, and ends it if the host rolls back.
#[test]
fn a_reaper_passes_over_what_is_being_ended() {
    for level in LEVELS {
        let scene = Scene::new();
        let lease = scene.admitted(&["t"])[0];
        let host = Hand::begin(&scene.scratch.0, level);
        host.call(move |tx| tx.finish(now(), &[Finish::success(lease)]).map(|done| format!("{done:?}")))
            .done();
        let late = now() + Duration::from_secs(3_600);
        assert_eq!(scene.store.write(|tx| tx.reap(late, 10)).unwrap().len(), 0, "{level}");
        host.rollback();
        let reaped = scene.store.write(|tx| tx.reap(late, 10)).unwrap();
        assert_eq!(reaped.len(), 1);
        assert_eq!(reaped[0].became, Finished::Ready);
        scene.audit();
    }
}

/// A task that is being cancelled is not promoted: it never becomes ready after it ended.
#[test]
fn promotion_beside_an_open_cancel() {
    for level in LEVELS {
        let scene = Scene::new();
        let lease = scene.admitted(&["t"])[0];
        scene.store.write(|tx| Verb::Retry.call(tx, "t", Some(lease))).unwrap();
        let host = Hand::begin(&scene.scratch.0, level);
        host.call(|tx| Verb::CancelReady.call(tx, "t", None)).done();
        let late = now() + Duration::from_secs(3_600);
        assert_eq!(scene.tick_at(late, 10).len(), 0, "{level}");
        host.commit();
        assert_eq!(scene.tick_at(late, 10).len(), 0, "{level}");
        assert_eq!(scene.task("t").state, TaskState::Failed);
        scene.audit();
    }
}

/// A run that an open `start` recorded is closed by whoever ends the attempt after it.
#[test]
fn finish_beside_an_open_start() {
    for level in LEVELS {
        let scene = Scene::new();
        let lease = scene.admitted(&["t"])[0];
        let one = Hand::begin(&scene.scratch.0, level);
        one.call(move |tx| Verb::Start.call(tx, "t", Some(lease))).done();
        let two = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        two.call(move |tx| Verb::Succeed.call(tx, "t", Some(lease))).waits();
        one.commit();
        let Step::Done(done) = two.rest() else { unreachable!() };
        done.unwrap();
        two.commit();
        let run = scene.task("t").attempt_run(1).unwrap();
        let runs = scene.store.read(|tx| tx.runs(std::slice::from_ref(&run))).unwrap();
        assert!(runs[0].as_ref().unwrap().stop.is_some(), "{level}");
        assert_eq!(scene.store.read(|tx| tx.tasks(&[key("t")])).unwrap().len(), 1);
        scene.audit();
    }
}
