//! Two transactions that enqueue one task.

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, Verb, now, task};
use stationmaster::Result;
use stationmaster::store::Tx;

/// Enqueues the task, and tells whether it is new.
fn enqueue(tx: &mut Tx<'_>) -> Result<String> {
    let inserted = tx.enqueue(now(), &[task("t")])?;
    Ok(format!("{:?}", inserted[0]).split('(').next().unwrap_or_default().to_owned())
}

/// The second one waits until the first has ended, and finds its task, or inserts it.
#[test]
fn two_enqueues_of_one_key() {
    for level in LEVELS {
        for commits in [true, false] {
            let scene = Scene::new();
            let (one, two) = (Hand::begin(&scene.scratch.0, level), Hand::begin(&scene.scratch.0, level));
            two.sql("SELECT 1").done();
            assert_eq!(one.call(enqueue).done(), "New");
            two.call(enqueue).waits();
            match commits {
                true => one.commit(),
                false => one.rollback(),
            }
            match two.rest() {
                Step::Done(Ok(told)) => {
                    assert!(level == "READ COMMITTED" || !commits, "{level}: {told}");
                    assert_eq!(told, if commits { "Exists" } else { "New" }, "{level}");
                    two.commit();
                }
                Step::Done(Err(error)) => {
                    assert!(level != "READ COMMITTED" && commits, "{level}: {error}");
                    assert!(error.starts_with("Conflict"), "{level}: {error}");
                    two.rollback();
                }
                Step::Waits(_) => unreachable!(),
            }
            assert_eq!(scene.granted(now(), 9), ["t"], "{level}");
            scene.audit();
        }
    }
}

/// Enqueueing a task that exists never waits, whatever another transaction does with it.
#[test]
fn a_known_key_waits_for_no_one() {
    for level in LEVELS {
        for verb in [Verb::Succeed, Verb::Retry, Verb::Register, Verb::CancelLeased] {
            let scene = Scene::new();
            let lease = scene.admitted(&["t"])[0];
            scene.store.write(|tx| tx.start(now(), &[lease])).unwrap();
            let host = Hand::begin(&scene.scratch.0, level);
            host.call(move |tx| verb.call(tx, "t", Some(lease))).done();
            assert_eq!(scene.store.write(enqueue).unwrap(), "Exists", "{level} {verb:?}");
            host.commit();
            scene.audit();
        }
    }
}
