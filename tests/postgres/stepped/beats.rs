//! A renewal that was confirmed holds: no lease is reaped before the instant that its holder received.

use std::time::Duration;

use stationmaster::ops::{Finish, Finished};
use stationmaster::store::contract::Move;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, TaskState};

use super::hand::{Hand, Step};
use super::orders::{self, Actor, Steps};
use super::scene::{LEVELS, Scene, key, later, now, task};

const BEAT: &str = include_str!("../../../src/store/postgres/tx/beat.sql");
const RENEW: &str = include_str!("../../../src/store/postgres/tx/renew.sql");
const LOCK_EXPIRED: &str = include_str!("../../../src/store/postgres/tx/lock_expired.sql");

/// A running task that is scheduled again when its lease is lost. Its lease lasts for 60 s.
fn running(scene: &Scene, name: &str) -> LeaseRef {
    let new = task(name).lease_loss(LeaseLoss::Requeue { at_most: 9 });
    scene.store.write(|tx| tx.enqueue(now(), std::slice::from_ref(&new))).unwrap();
    granted(scene, name)
}

fn granted(scene: &Scene, name: &str) -> LeaseRef {
    let lease = scene.tick(1).remove(0);
    assert_eq!(lease.key, key(name));
    scene.store.write(|tx| tx.start(now(), &[lease.lease_ref()])).unwrap();
    lease.lease_ref()
}

/// How many leases upkeep ends that looks at this second.
fn reaped(scene: &Scene, second: u64) -> usize {
    scene.store.write(|tx| tx.reap(later(second), 10)).unwrap().len()
}

fn begin(level: &str) -> Box<dyn FnMut(&Hand) -> Step> {
    let begin = format!("BEGIN ISOLATION LEVEL {level}");
    Box::new(move |hand| hand.sql(&begin))
}

/// The two statements of a renewal until this second.
fn renewal(scene: &Scene, level: &str, lease: LeaseRef, until: u64) -> Steps {
    let (no, epoch) = (format!("{{{}}}", lease.id.0), format!("{{{}}}", lease.epoch));
    let until = later(until).as_micros().to_string();
    let (beat, renew) = (scene.sql(BEAT, &[&no, &epoch, &until]), scene.sql(RENEW, &[&no, &epoch]));
    vec![begin(level), Box::new(move |hand| hand.sql(&beat)), Box::new(move |hand| hand.sql(&renew))]
}

/// Upkeep that locks what has expired at this second, and then does all of it.
fn reaping(scene: &Scene, second: u64) -> Steps {
    let lock =
        scene.sql(LOCK_EXPIRED, &[&later(second).as_micros().to_string(), "9", "-9223372036854775808"]);
    let reap = move |hand: &Hand| {
        hand.call(move |tx| tx.reap(later(second), 9).map(|reaped| reaped.len().to_string()))
    };
    vec![begin("READ COMMITTED"), Box::new(move |hand| hand.sql(&lock)), Box::new(reap)]
}

/// In all 70 orders, at each level, with a lease that has expired unless the renewal holds.
#[test]
fn all_orders_of_renew_and_reap() {
    let scene = Scene::new();
    let (holder, upkeep) = (Hand::new(&scene.scratch.0), Hand::new(&scene.scratch.0));
    for level in LEVELS {
        let (mut held, mut lost) = (0, 0);
        for (nth, order) in orders::all(4, 4).iter().enumerate() {
            let of = format!("{level} {nth}");
            let lease = running(&scene, &of);
            let mut renews = Actor::new(&holder, renewal(&scene, level, lease, 200));
            let mut reaps = Actor::new(&upkeep, reaping(&scene, 100));
            orders::run(order, &mut renews, &mut reaps);
            assert!(!renews.has_waited && !reaps.has_waited, "{of}");
            let told = renews.said.last().unwrap().clone();
            let is_confirmed = renews.has_committed && told.is_ok_and(|told| told.ends_with("|t|"));
            let state = scene.task(&of).state;
            let holds = state == TaskState::Running;
            assert!(holds || !is_confirmed, "{of}, told that it lasts: {:?} {:?}", renews.said, reaps.said);
            if is_confirmed {
                assert_eq!(reaped(&scene, 199), 0, "{of}: it was told that the lease lasts");
                held += 1;
            }
            lost += usize::from(!holds);
            let ended = scene.store.write(|tx| {
                let end = tx.finish(now(), &[Finish::success(lease)])?.remove(0);
                let mark = stationmaster::ops::Mark::new(key(&of), TaskState::Success, "");
                tx.mark(now(), &[mark])?;
                Ok(end)
            });
            assert_eq!(ended.unwrap() == Finished::Stale, !holds, "{of}");
        }
        assert!(held > 10 && lost > 10, "{level}: {held} held, {lost} lost");
        scene.audit();
    }
}

/// Its beats are of an earlier epoch, whatever their instants and numbers. So are its other calls.
#[test]
fn a_stale_holder_beside_the_new_one() {
    for level in LEVELS {
        let scene = Scene::new();
        let old = running(&scene, "t");
        let stale = Hand::new(&scene.scratch.0);
        let mut steps = renewal(&scene, level, old, 9_000);
        for step in &mut steps[..2] {
            step(&stale).done();
        }
        assert_eq!(reaped(&scene, 61), 1, "{level}: nobody was told that it lasts");
        let new = scene.tick(1).remove(0).lease_ref();
        assert_eq!((new.id, new.epoch), (old.id, old.epoch + 1));
        assert_eq!(scene.store.write(|tx| tx.start(now(), &[old])).unwrap(), [false], "{level}");
        assert_eq!(scene.task("t").state, TaskState::Queued, "{level}");
        assert_eq!(scene.store.write(|tx| tx.start(now(), &[new])).unwrap(), [true], "{level}");
        let renewed = scene.store.write(|tx| tx.renew(later(50), Duration::from_secs(100), &[new])).unwrap();
        assert!(!renewed[0].is_lost());
        match (steps[2])(&stale) {
            Step::Done(Ok(told)) if level == "READ COMMITTED" => {
                assert_eq!(told, "", "the lease is not there");
                stale.commit();
            }
            Step::Done(Ok(told)) => panic!("{level}: {told}"),
            Step::Done(Err(code)) => {
                assert_eq!(code, "40001", "{level}");
                stale.rollback();
            }
            Step::Waits(_) => panic!("{level}: it waits"),
        }
        let calls = scene.store.write(|tx| {
            let renewed = tx.renew(later(60), Duration::from_secs(9_000), &[old])?[0].is_lost();
            let moved = raw(tx).move_if(&[Move::new(old, TaskState::Running, TaskState::Success)])?;
            Ok((renewed, moved, tx.finish(now(), &[Finish::success(old)])?))
        });
        assert_eq!(calls.unwrap(), (true, vec![false], vec![Finished::Stale]), "{level}");
        assert_eq!(scene.lease("t"), new, "{level}");
        assert_eq!(reaped(&scene, 149), 0, "{level}: the new one was told so");
        assert_eq!(reaped(&scene, 151), 1, "{level}: a beat of the old one counts for nothing");
        scene.audit();
    }
}

/// Neither waits for the other, and the later instant counts, whichever comes first. Of two serializable ones
/// the server may refuse one.
#[test]
fn two_renewals_of_one_lease() {
    for level in &LEVELS[..2] {
        for untils in [[200, 90], [90, 200]] {
            for commits_first in [0, 1] {
                let scene = Scene::new();
                let lease = running(&scene, "t");
                let hands = [Hand::new(&scene.scratch.0), Hand::new(&scene.scratch.0)];
                let mut steps = untils.map(|until| renewal(&scene, level, lease, until));
                for at in 0..3 {
                    for (hand, steps) in hands.iter().zip(&mut steps) {
                        let told = (steps[at])(hand).done();
                        assert!(at < 2 || told.ends_with("|t|"), "{level}: {told}");
                    }
                }
                hands[commits_first].sql("COMMIT").done();
                assert_eq!(reaped(&scene, 1_000), 0, "{level}: the other one still renews it");
                hands[1 - commits_first].sql("COMMIT").done();
                let again = scene.store.write(|tx| tx.renew(now(), Duration::from_secs(1), &[lease]));
                assert!(!again.unwrap()[0].is_lost());
                assert_eq!(scene.numbers("SELECT count(*) FROM sm.beat"), [1], "the latest stays");
                assert_eq!(reaped(&scene, 199), 0, "{level}, {untils:?}: an earlier instant changes nothing");
                assert_eq!(reaped(&scene, 201), 1, "{level}");
                scene.audit();
            }
        }
    }
}
