//! Two transactions that enqueue one task.

use super::hand::{Hand, Step, until_one_waits};
use super::scene::{LEVELS, Scene, Verb, now, task};
use stationmaster::store::{Inserted, Tx};
use stationmaster::{NewTask, Result};

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

/// A statement whose commit is sent along expects that all of its tasks are new. If one was inserted after it had
/// looked, it fails, and runs again as one that finds tasks, too.
#[test]
fn a_commit_goes_along_with_the_enqueue_of_a_key_that_is_inserted_meanwhile() {
    for names in [&["t"][..], &["s", "t", "u"]] {
        for commits in [true, false] {
            let scene = Scene::new();
            let tasks: Vec<NewTask> = names.iter().map(|name| task(name)).collect();
            let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
            assert_eq!(host.call(enqueue).done(), "New");
            let told = std::thread::scope(|scope| {
                let call =
                    scope.spawn(|| scene.store.write(|tx| tx.last(|tx| tx.enqueue(now(), &tasks))).unwrap());
                until_one_waits(&scene.scratch.0);
                match commits {
                    true => host.commit(),
                    false => host.rollback(),
                }
                call.join().unwrap()
            });
            let exists = |told: &Inserted| matches!(told, Inserted::Exists(_));
            let expected: Vec<bool> = names.iter().map(|name| commits && *name == "t").collect();
            assert_eq!(told.iter().map(exists).collect::<Vec<_>>(), expected, "{names:?}, {commits}");
            let mut granted = scene.granted(now(), 9);
            granted.sort();
            assert_eq!(granted, names);
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
            assert_eq!(scene.store.write(|tx| tx.last(enqueue)).unwrap(), "Exists", "{level} {verb:?}");
            let both =
                scene.store.write(|tx| tx.last(|tx| tx.enqueue(now(), &[task("t"), task("u")]))).unwrap();
            assert!(
                matches!(both[..], [Inserted::Exists(_), Inserted::New(_)]),
                "{level} {verb:?}: {both:?}"
            );
            host.commit();
            scene.audit();
        }
    }
}
