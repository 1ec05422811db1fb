//! What a poker does about a sensor whose task a host has open.

use std::sync::Arc;

use stationmaster::TaskState;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeReport, PokeRequest, Poker, Service};

use super::hand::{Hand, until_so_many_wait};
use super::scene::{LEVELS, Scene, Verb, later, sensor};

/// A poker of sensors that land at their first poke.
fn poker(scene: &Scene) -> Poker {
    poker_named(scene, "p")
}

fn poker_named(scene: &Scene, name: &str) -> Poker {
    let store = Arc::new(scene.scratch.open(|options| options));
    Poker::new(store, name.try_into().unwrap())
        .wait_for_answers(std::time::Duration::from_secs(60))
        .kind("k".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::Landed(None))
}

fn tick(poker: &mut Poker, second: u64) -> PokeReport {
    poker.tick(later(second)).unwrap()
}

fn sensing(names: &[&str]) -> Scene {
    let scene = Scene::new();
    let leases = scene.admitted(names);
    let registered = scene.store.write(|tx| {
        tx.start(later(1), &leases)?;
        tx.register(later(1), &leases.iter().copied().map(sensor).collect::<Vec<_>>())
    });
    assert!(registered.unwrap().iter().all(|registered| registered.is_waiting()));
    scene
}

/// How many events there are of each task, with a number or without.
fn events(scene: &Scene) -> Vec<i64> {
    scene.numbers(
        "SELECT count(e.no) FROM sm.task LEFT JOIN (
           SELECT no FROM sm.feed UNION ALL SELECT no FROM sm.feed_inbox) e USING (no)
         GROUP BY task.no ORDER BY task.no",
    )
}

/// The poker keeps it, and ends it at its next tick.
#[test]
fn an_end_that_is_rolled_back() {
    for level in LEVELS {
        for verb in [Verb::EndSensor, Verb::CancelSensing] {
            let scene = sensing(&["held", "free"]);
            let lease = scene.lease("held");
            let host = Hand::begin(&scene.scratch.0, level);
            host.call(move |tx| verb.call(tx, "held", Some(lease))).done();
            let mut poker = poker(&scene);
            let report = tick(&mut poker, 3);
            assert_eq!((report.landed, report.sensors), (1, 1), "{level} {verb:?}: {report:?}");
            assert!(report.next_due.is_some_and(|due| due <= later(4)), "{:?}", report.next_due);
            host.rollback();
            let report = tick(&mut poker, 4);
            assert_eq!((report.landed, report.sensors), (1, 0), "{level} {verb:?}: {report:?}");
            assert_eq!(scene.task("held").state, TaskState::Success);
            assert_eq!(events(&scene), [1, 1]);
            scene.audit();
        }
    }
}

/// The host's end counts, and the poker's does not come on top of it.
#[test]
fn an_end_that_is_committed() {
    for level in LEVELS {
        let scene = sensing(&["held", "free"]);
        let host = Hand::begin(&scene.scratch.0, level);
        host.call(move |tx| Verb::CancelSensing.call(tx, "held", None)).done();
        let mut poker = poker(&scene);
        assert_eq!(tick(&mut poker, 3).sensors, 1, "{level}");
        host.commit();
        let report = tick(&mut poker, 4);
        assert_eq!((report.landed, report.sensors), (0, 0), "{level}: {report:?}");
        assert_eq!(scene.task("held").state, TaskState::Failed);
        assert_eq!(events(&scene), [1, 1]);
        scene.audit();
    }
}

/// Two hosts end one sensor: the second waits, and finds that it has ended.
#[test]
fn two_ends_of_one_sensor() {
    for level in LEVELS {
        let scene = sensing(&["t"]);
        let lease = scene.lease("t");
        let (one, two) = (Hand::begin(&scene.scratch.0, level), Hand::begin(&scene.scratch.0, level));
        two.sql("SELECT 1").done();
        assert_eq!(one.call(move |tx| Verb::EndSensor.call(tx, "t", Some(lease))).done(), "[true]");
        two.call(move |tx| Verb::EndSensor.call(tx, "t", Some(lease))).waits();
        one.commit();
        match two.rest() {
            super::hand::Step::Done(Ok(told)) => {
                assert_eq!((level, told.as_str()), ("READ COMMITTED", "[false]"));
                two.commit();
            }
            super::hand::Step::Done(Err(error)) => {
                assert!(level != "READ COMMITTED" && error.starts_with("Conflict"), "{level}: {error}");
                two.rollback();
            }
            step => panic!("{step:?}"),
        }
        assert_eq!(events(&scene), [1], "{level}");
        scene.audit();
    }
}

/// A worker renews its leases after their end, and another one takes its shards. Both have read the leases before either
/// writes: the shards have one worker, whichever comes first.
#[test]
fn a_late_renewal_and_a_takeover() {
    for late_first in [true, false] {
        let scene = Scene::new();
        let [mut late, mut heir] = ["late", "heir"].map(|name| poker_named(&scene, name));
        assert_eq!(tick(&mut late, 0).shards, 16);
        let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        host.sql(&format!("SELECT FROM {}.shard WHERE shard = 0 FOR UPDATE", scene.scratch.0)).done();
        let [first, second] = if late_first { [&mut late, &mut heir] } else { [&mut heir, &mut late] };
        let shards = std::thread::scope(|scope| {
            let first = scope.spawn(|| tick(first, 31).shards);
            until_so_many_wait(&scene.scratch.0, 1);
            let second = scope.spawn(|| tick(second, 31).shards);
            until_so_many_wait(&scene.scratch.0, 2);
            host.commit();
            [first, second].map(|one| one.join().unwrap())
        });
        assert_eq!(shards, [16, 0], "late first: {late_first}");
    }
}
