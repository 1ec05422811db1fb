//! Retention passes over what others hold, and goes on behind it.

use std::time::Duration;

use stationmaster::TaskState;
use stationmaster::ops::Finish;

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, Verb, key, later};

fn forget(scene: &Scene, limit: usize) -> usize {
    scene.store.write(|tx| tx.forget_ended(later(10), Duration::ZERO, limit)).unwrap()
}

/// Three tasks that ended, the first one first.
fn ended(scene: &Scene) {
    let leases = scene.admitted(&["a", "b", "c"]);
    for (second, lease) in leases.into_iter().enumerate() {
        let at = later(second as u64);
        scene
            .store
            .write(|tx| {
                tx.start(at, &[lease])?;
                tx.finish(at, &[Finish::success(lease)])
            })
            .unwrap();
    }
}

fn is_there(scene: &Scene, name: &str) -> bool {
    scene.store.read(|tx| tx.tasks(&[key(name)])).unwrap()[0].is_some()
}

/// A host clears the task that ended first. It is forgotten if the host rolls back, and waits again if not.
#[test]
fn a_locked_task_is_passed_over() {
    for level in LEVELS {
        for commits in [false, true] {
            let scene = Scene::new();
            ended(&scene);
            let host = Hand::begin(&scene.scratch.0, level);
            host.call(|tx| Verb::Clear.call(tx, "a", None)).done();
            assert_eq!(forget(&scene, 1), 1, "{level}: another one instead");
            assert_eq!(forget(&scene, 9), 1, "{level}");
            assert_eq!(["a", "b", "c"].map(|name| is_there(&scene, name)), [true, false, false]);
            match commits {
                true => host.commit(),
                false => host.rollback(),
            }
            assert_eq!(forget(&scene, 9), usize::from(!commits), "{level}");
            assert_eq!(is_there(&scene, "a"), commits);
            let waiting = scene.granted(later(11), 9);
            assert_eq!(waiting.len(), usize::from(commits), "{level}");
            scene.audit();
        }
    }
}

/// A host that acts on a task while retention deletes it waits, and then finds no task.
#[test]
fn a_host_finds_that_its_task_was_forgotten() {
    for level in LEVELS {
        let scene = Scene::new();
        ended(&scene);
        let host = Hand::begin(&scene.scratch.0, level);
        host.sql("SELECT 1").done();
        let retention = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        let forget = |tx: &mut stationmaster::store::Tx<'_>| {
            tx.forget_ended(later(10), Duration::ZERO, 9).map(|gone| gone.to_string())
        };
        assert_eq!(retention.call(forget).done(), "3");
        host.call(|tx| Verb::Clear.call(tx, "b", None)).waits();
        retention.commit();
        match host.rest() {
            Step::Done(Ok(told)) => {
                assert_eq!((level, told.as_str()), ("READ COMMITTED", "[Unknown]"));
                host.commit();
            }
            Step::Done(Err(error)) => {
                assert!(level != "READ COMMITTED" && error.starts_with("Conflict"), "{level}: {error}");
                host.rollback();
            }
            Step::Waits(_) => unreachable!(),
        }
        assert!(!is_there(&scene, "b"));
        let again = scene.admitted(&["b"]);
        assert_eq!((again.len(), scene.task("b").state), (1, TaskState::Queued), "the name is free");
        scene.audit();
    }
}
