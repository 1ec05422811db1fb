//! Fan-in: two transactions that end the last two siblings at once.

use stationmaster::ops::Finish;
use stationmaster::store::Tx;
use stationmaster::{LeaseRef, Result, TaskState};

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, key, now, task};

/// Ends one sibling, and enqueues the successor if the other has ended as well.
fn end(tx: &mut Tx<'_>, lease: LeaseRef, sibling: &str) -> Result<String> {
    tx.serialize(&["n/w/r"])?;
    tx.finish(now(), &[Finish::success(lease)])?;
    let other = tx.tasks(&[key(sibling)])?.remove(0);
    if other.is_some_and(|task| task.state == TaskState::Success) {
        tx.enqueue(now(), &[task("successor")])?;
        return Ok("enqueued".into());
    }
    Ok("not the last".into())
}

#[test]
fn the_last_two_siblings_enqueue_their_successor_once() {
    for (level, is_known) in LEVELS.into_iter().flat_map(|level| [(level, false), (level, true)]) {
        let scene = Scene::new();
        let leases = scene.admitted(&["left", "right"]);
        let (left, right) = (leases[0], leases[1]);
        if is_known {
            scene.store.write(|tx| tx.serialize(&["n/w/r"])).unwrap();
        }
        let first = Hand::begin(&scene.scratch.0, level);
        let second = Hand::begin(&scene.scratch.0, level);
        // Both have their view before either ends a task.
        for host in [&first, &second] {
            host.sql("SELECT 1").done();
        }
        assert_eq!(first.call(move |tx| end(tx, left, "right")).done(), "not the last");
        second.call(move |tx| end(tx, right, "left")).waits();
        first.commit();
        match (level, second.rest()) {
            ("READ COMMITTED", Step::Done(done)) => {
                assert_eq!(done.unwrap(), "enqueued");
                second.commit();
            }
            (_, Step::Done(Err(error))) => {
                assert!(error.starts_with("Conflict"), "{level}: {error}");
                second.sql("ROLLBACK").done();
                second.sql(&format!("BEGIN ISOLATION LEVEL {level}")).done();
                assert_eq!(second.call(move |tx| end(tx, right, "left")).done(), "enqueued");
                second.commit();
            }
            other => panic!("{other:?}"),
        }
        let granted = scene.tick(10);
        assert_eq!(granted.iter().map(|task| task.key.task.as_str()).collect::<Vec<_>>(), ["successor"]);
        scene.audit();
    }
}

#[test]
fn other_names_do_not_wait() {
    let scene = Scene::new();
    let first = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    first.call(|tx| tx.serialize(&["one"]).map(|()| String::new())).done();
    let second = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    second.call(|tx| tx.serialize(&["two"]).map(|()| String::new())).done();
    second.commit();
    first.rollback();
}

#[test]
fn a_store_and_a_host_take_turns() {
    let scene = Scene::new();
    let leases = scene.admitted(&["left", "right"]);
    let (left, right) = (leases[0], leases[1]);
    let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    assert_eq!(host.call(move |tx| end(tx, left, "right")).done(), "not the last");
    std::thread::scope(|scope| {
        let store = scene.scratch.open(|options| options);
        let other = scope.spawn(move || store.write(|tx| end(tx, right, "left")).unwrap());
        host.commit();
        assert_eq!(other.join().unwrap(), "enqueued");
    });
    scene.audit();
}
