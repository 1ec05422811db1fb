//! Pokers of one name: beside each other, one after the other.

use super::*;
use stationmaster::testing::raw;

/// The shards that it holds, and until when its name is another one's.
fn tick(poker: &mut Poker, now: i64) -> (u32, Option<i64>) {
    let report = poker.tick(at(now)).unwrap();
    if report.name_taken_until.is_some() {
        assert_eq!(
            report.next_due, report.name_taken_until,
            "it comes again when the other one's lease ends"
        );
        assert_eq!((report.shards, report.sensors, report.poked), (0, 0, 0));
    }
    (report.shards, report.name_taken_until.map(|until| until.as_micros() / 1_000_000))
}

#[test]
fn of_two_live_pokers_of_one_name_only_one_pokes() {
    for store in stores() {
        sense(&store, 0, &["a", "b", "c"], waits(10, 86_400));
        let asked = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let mut pokers =
            asked.each_ref().map(|asked| (at(0), poker(&store, "w", asked, PokeOutcome::NotYet)));
        assert_eq!(tick(&mut pokers[0].1, 0), (4, None));
        assert_eq!(tick(&mut pokers[1].1, 0), (0, Some(30)));
        loop {
            let (due, poker) = pokers.iter_mut().min_by_key(|(due, _)| *due).unwrap();
            if *due > at(200) {
                break;
            }
            *due = poker.tick(*due).unwrap().next_due.unwrap();
        }
        let asked = asked.map(|asked| asked.load(Ordering::SeqCst));
        assert_eq!(asked, [3 + 3 * 20, 0], "at the registration, and in each interval");
    }
}

#[test]
fn a_poker_that_died_is_replaced_when_its_lease_ends() {
    for store in stores() {
        let asked = Arc::new(AtomicUsize::new(0));
        sense(&store, 0, &["t"], waits(10, 86_400));
        let mut dead = poker(&store, "w", &asked, PokeOutcome::NotYet);
        for now in [0, 10, 20] {
            assert_eq!(tick(&mut dead, now), (4, None));
        }
        let mut next = poker(&store, "w", &asked, PokeOutcome::NotYet);
        assert_eq!(tick(&mut next, 21), (0, Some(50)));
        assert_eq!(tick(&mut next, 49), (0, Some(50)));
        next.leave().unwrap();
        assert_eq!(tick(&mut next, 49), (0, Some(50)), "it leaves without what is not its own");
        assert_eq!(tick(&mut next, 50), (4, None));
    }
}

#[test]
fn a_poker_that_left_is_replaced_at_once() {
    for store in stores() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut old = poker(&store, "w", &asked, PokeOutcome::NotYet);
        let mut new = poker(&store, "w", &asked, PokeOutcome::NotYet);
        assert_eq!(tick(&mut old, 0), (4, None));
        assert_eq!(tick(&mut new, 1), (0, Some(30)));
        old.leave().unwrap();
        assert_eq!(tick(&mut new, 2), (4, None), "also before it is due");
        assert_eq!(tick(&mut old, 3), (0, Some(32)), "the one that left is the second now");
    }
}

/// A worker that was held up finds its successor at work, and takes nothing from it, not even when it leaves.
#[test]
fn a_poker_that_comes_back_after_its_successor_began_holds_nothing() {
    for store in stores() {
        let asked = Arc::new(AtomicUsize::new(0));
        sense(&store, 0, &["t"], waits(10, 86_400));
        let mut late = poker(&store, "w", &asked, PokeOutcome::NotYet);
        let mut next = poker(&store, "w", &asked, PokeOutcome::NotYet);
        assert_eq!(tick(&mut late, 0), (4, None));
        assert_eq!(tick(&mut next, 30), (4, None));
        assert_eq!(tick(&mut late, 31), (0, Some(60)));
        late.leave().unwrap();
        let holders = store.read(|tx| Ok(raw(tx).shard_leases()?)).unwrap();
        assert!(holders.iter().all(|lease| lease.holder.is_some()), "{holders:?}");
        assert_eq!(tick(&mut next, 40), (4, None));
        next.leave().unwrap();
        assert_eq!(tick(&mut late, 41), (4, None));
    }
}
