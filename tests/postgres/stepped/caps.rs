//! Caps on what waits: which enqueues wait for each other, and by how much a cap may be passed.

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Definition, IfExists, QueueSpec, WaitingCap};
use stationmaster::store::{Inserted, Tx};
use stationmaster::{NewTask, Result};

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, key, now};

/// A scene in which one task may wait in the queue `gpu`, and one with a key `t/…`.
fn scene(strict: bool) -> Scene {
    let scene = Scene::new();
    let cap = WaitingCap::new(1).unwrap().strict(strict);
    let definitions: [Definition; 2] = [
        QueueSpec::new("gpu".try_into().unwrap(), cap).into(),
        LimitSpec::of("t/".try_into().unwrap()).family().waiting(cap).into(),
    ];
    scene.store.write(|tx| tx.define(definitions.clone(), IfExists::Replace)).unwrap();
    scene
}

/// Enqueues a task, and tells in words what became of it.
fn enqueue(tx: &mut Tx<'_>, task: NewTask) -> Result<String> {
    Ok(match tx.enqueue(now(), &[task])?.remove(0) {
        Inserted::New(_) => "new".into(),
        other => other.to_string(),
    })
}

fn gpu(name: &str) -> NewTask {
    NewTask::new(key(name)).queue("gpu".try_into().unwrap())
}

fn of(name: &str, tenant: &str) -> NewTask {
    NewTask::new(key(name)).limit(tenant.try_into().unwrap())
}

/// How many tasks wait in all.
fn waiting(scene: &Scene) -> u64 {
    scene.store.read(|tx| tx.queues()).unwrap().iter().map(|queue| queue.waiting).sum()
}

/// Tasks of the same cap, and how its refusal ends.
fn pairs() -> [(NewTask, NewTask, &'static str); 2] {
    [(gpu("a"), gpu("b"), "queue gpu"), (of("a", "t/x"), of("b", "t/x"), "limit t/x")]
}

#[test]
fn open_enqueues_do_not_see_each_other_and_none_waits() {
    for (level, (a, b, what)) in LEVELS.into_iter().flat_map(|level| pairs().map(|pair| (level, pair))) {
        let scene = scene(false);
        let first = Hand::begin(&scene.scratch.0, level);
        let second = Hand::begin(&scene.scratch.0, level);
        assert_eq!(first.call(move |tx| enqueue(tx, a)).done(), "new");
        assert_eq!(second.call(move |tx| enqueue(tx, b)).done(), "new", "{level}");
        // Its own is counted.
        let own = if what.starts_with("queue") { gpu("c") } else { of("c", "t/x") };
        let refused = format!("refused: 1 of at most 1 tasks wait in {what}");
        assert_eq!(second.call(move |tx| enqueue(tx, own)).done(), refused, "{level}");
        first.commit();
        // There the server itself finds that each counted without the other.
        let together = match level {
            "SERIALIZABLE" => {
                assert!(matches!(second.sql("COMMIT"), Step::Done(Err(code)) if code == "40001"));
                1
            }
            _ => {
                second.commit();
                2
            }
        };
        assert_eq!(waiting(&scene), together, "{level}: passed by what they inserted together");
        let late = if what.starts_with("queue") { gpu("d") } else { of("d", "t/x") };
        let late = scene.store.write(|tx| enqueue(tx, late.clone())).unwrap();
        assert_eq!(late, format!("refused: {together} of at most 1 tasks wait in {what}"));
        scene.audit();
    }
}

#[test]
fn under_a_strict_cap_enqueues_take_turns_and_the_cap_is_exact() {
    for (level, commits, (a, b, what)) in LEVELS.into_iter().flat_map(|level| {
        [true, false].into_iter().flat_map(move |commits| pairs().map(|pair| (level, commits, pair)))
    }) {
        let scene = scene(true);
        let first = Hand::begin(&scene.scratch.0, level);
        let second = Hand::begin(&scene.scratch.0, level);
        // Both have their view before either enqueues.
        for host in [&first, &second] {
            host.sql("SELECT 1").done();
        }
        assert_eq!(first.call(move |tx| enqueue(tx, a)).done(), "new");
        let again = b.clone();
        second.call(move |tx| enqueue(tx, b)).waits();

        // Nothing else waits: not in another queue or with another key of the family, and no tick.
        // Not at SERIALIZABLE, where the server counts every change against a transaction that has counted.
        let beside = if level == "SERIALIZABLE" { "REPEATABLE READ" } else { level };
        let third = Hand::begin(&scene.scratch.0, beside);
        let cpu = NewTask::new(key("c")).queue("cpu".try_into().unwrap());
        assert_eq!(third.call(move |tx| enqueue(tx, cpu)).done(), "new", "{level}");
        third.commit();
        let fourth = Hand::begin(&scene.scratch.0, beside);
        assert_eq!(fourth.call(|tx| enqueue(tx, of("d", "t/other"))).done(), "new", "{level}");
        fourth.commit();
        assert_eq!(scene.tick(9).len(), 2);

        let refused = format!("refused: 1 of at most 1 tasks wait in {what}");
        if commits {
            first.commit()
        } else {
            first.rollback()
        };
        match (level, second.rest()) {
            ("READ COMMITTED", Step::Done(done)) => {
                assert_eq!(done.unwrap(), if commits { &refused } else { "new" }, "{level}");
                second.commit();
            }
            (_, Step::Done(Err(error))) if commits => {
                assert!(error.starts_with("Conflict"), "{level}: {error}");
                second.sql("ROLLBACK").done();
                second.sql(&format!("BEGIN ISOLATION LEVEL {level}")).done();
                assert_eq!(second.call(move |tx| enqueue(tx, again)).done(), refused);
                second.commit();
            }
            // It waited for one that did nothing.
            (_, Step::Done(Ok(done))) if !commits => {
                assert_eq!(done, "new", "{level}");
                second.commit();
            }
            (level, other) => panic!("{level}: {other:?}"),
        }
        assert_eq!(waiting(&scene), 1, "{level}");
        scene.audit();
    }
}

#[test]
fn sql_takes_turns_with_the_crate_under_a_strict_cap() {
    let scene = scene(true);
    let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    let call = scene.sql("SELECT is_new FROM sm.enqueue(0, 'n', 'w', 'r', $1::text, queue => 'gpu')", &["a"]);
    host.sql(&call).done();
    let other = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    other.call(|tx| enqueue(tx, gpu("b"))).waits();
    host.commit();
    assert_eq!(other.rest().done(), "refused: 1 of at most 1 tasks wait in queue gpu");
    // The other way round.
    scene.tick(9);
    assert_eq!(other.call(|tx| enqueue(tx, gpu("b"))).done(), "new");
    let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    let call = scene.sql("SELECT is_new FROM sm.enqueue(0, 'n', 'w', 'r', $1::text, queue => 'gpu')", &["c"]);
    host.sql(&call).waits();
    other.commit();
    let Step::Done(Err(refused)) = host.rest() else { panic!("it was not refused") };
    assert_eq!(refused, "SM007");
    host.rollback();
    scene.audit();
}
