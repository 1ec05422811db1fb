//! Upkeep beside an old snapshot, which keeps leases that ended in the index of expiries.

use std::sync::Arc;
use std::time::Duration;

use stationmaster::Timestamp;
use stationmaster::lease::Renewal;
use stationmaster::service::{Service, Upkeep};
use stationmaster::store::PostgresStore;

use super::hand::Hand;
use super::scene::{Scene, later, now, task};
use crate::scratch::url;

/// Leaves more dead entries than a search walks over again, of leases that expire in a minute.
fn leave_dead(scene: &Scene) {
    let expires = later(60).as_micros();
    scene.ask(&scene.sql(
        &format!(
            "INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, holder)
             SELECT -i, 1, md5('l')::uuid, 1, {expires}, 0, 0, 0, 'h' FROM generate_series(1, 50001) i;
             DELETE FROM sm.lease WHERE no < 0"
        ),
        &[],
    ));
}

fn upkeep(scene: &Scene) -> Upkeep {
    let store = PostgresStore::connect(&url(), scene.scratch.options()).unwrap();
    Upkeep::new(Arc::new(store)).grace(Duration::ZERO)
}

/// Returns how many leases upkeep ended at this second, and when it looks again.
fn tick(upkeep: &mut Upkeep, second: u64) -> (usize, Option<Timestamp>) {
    let report = upkeep.tick(later(second)).unwrap();
    (report.reaped.len(), report.next_due)
}

#[test]
fn upkeep_looks_only_around_the_present_and_misses_nothing() {
    let scene = Scene::new();
    let reader = Hand::begin(&scene.scratch.0, "REPEATABLE READ");
    reader.sql("SELECT txid_current_snapshot()").done();
    leave_dead(&scene);
    let mut upkeep = upkeep(&scene);
    scene.store.write(|tx| tx.enqueue(now(), &["short", "long", "late"].map(task))).unwrap();
    let [_, long] = <[_; 2]>::try_from(scene.tick(2)).unwrap().map(|task| task.lease_ref());
    assert_eq!(tick(&mut upkeep, 1), (0, Some(later(60))), "from the beginning");
    assert_eq!(tick(&mut upkeep, 2), (0, Some(later(3))), "around the present");
    let renewed = scene.store.write(|tx| tx.renew(later(40), Duration::from_secs(60), &[long])).unwrap();
    assert_eq!(renewed, [Renewal::Renewed]);
    for second in 41..59 {
        assert_eq!(tick(&mut upkeep, second), (0, Some(later(second + 1))));
    }
    assert_eq!(tick(&mut upkeep, 59), (0, Some(later(60))));
    assert_eq!(tick(&mut upkeep, 60), (1, Some(later(61))), "and what is renewed stays");
    // By a clock that is slow.
    assert_eq!(scene.tick(1).len(), 1);
    let ended: Vec<usize> = (70..200).map(|second| tick(&mut upkeep, second).0).collect();
    let at = |nth| ended.iter().enumerate().filter(|(_, ended)| **ended > 0).map(|(at, _)| at + 70).nth(nth);
    assert_eq!(ended.iter().sum::<usize>(), 2);
    assert!([at(0), at(1)].contains(&Some(100)), "when its beat says: {ended:?}");
    assert!(at(1).is_some_and(|second| second < 160), "within 60 looks: {ended:?}");
    scene.audit();
    reader.rollback();
}
