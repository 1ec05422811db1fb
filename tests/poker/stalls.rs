//! Fleets whose workers could all not renew for longer than a lease, or that begin at once.

use super::*;
use stationmaster::testing::raw;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

struct Fleet {
    store: Arc<dyn Store>,
    asked: Arc<AtomicUsize>,
    /// Each with the instant at which it is due.
    workers: Vec<(Timestamp, Poker)>,
}

impl Fleet {
    /// Eight workers of 16 shards that have settled.
    fn settled(store: Arc<dyn Store>) -> Self {
        let names: Vec<String> = (0..64).map(|n| format!("t{n}")).collect();
        sense(&store, 0, &names.iter().map(String::as_str).collect::<Vec<_>>(), waits(20, 86_400));
        let mut fleet = Self { store, asked: Arc::default(), workers: Vec::new() };
        fleet.begin(&NAMES, 0, |poker| poker);
        fleet.run(100);
        assert_eq!(fleet.shards(), [2; 8]);
        fleet
    }

    /// Makes workers, due one second after the other.
    fn begin(&mut self, names: &[&str], now: i64, set: impl Fn(Poker) -> Poker) {
        let asked = &self.asked;
        for (name, now) in names.iter().zip(now..) {
            let asked = asked.clone();
            let poke = move |_: &PokeRequest| {
                asked.fetch_add(1, Ordering::SeqCst);
                PokeOutcome::NotYet
            };
            let poker = set(Poker::new(self.store.clone(), (*name).try_into().unwrap()));
            let poker = poker.threads(2).wait_for_answers(secs(60)).refresh_every(secs(3600));
            self.workers.push((at(now), poker.kind("kind".try_into().unwrap(), poke)));
        }
    }

    /// Ticks each worker that is due, up to this instant. Returns the most shards that anyone held, and what
    /// was unclaimed last.
    fn run(&mut self, until: i64) -> (u32, u32) {
        let (mut most, mut unclaimed) = (0, 0);
        while let Some((due, poker)) = self.workers.iter_mut().min_by_key(|(due, _)| *due) {
            if *due > at(until) {
                break;
            }
            let report = poker.tick(*due).unwrap();
            *due = report.next_due.unwrap();
            most = most.max(report.shards);
            unclaimed = report.unclaimed;
        }
        (most, unclaimed)
    }

    /// No worker ticks until that instant. Then they come back one second after the other, the last one
    /// first.
    fn stall(&mut self, until: i64) {
        self.workers.reverse();
        for ((due, _), now) in self.workers.iter_mut().zip(until..) {
            *due = at(now);
        }
    }

    /// How many shards each of the workers holds that hold any, by the store.
    fn shards(&self) -> Vec<usize> {
        let mut held = BTreeMap::<String, usize>::new();
        for lease in self.store.read(|tx| Ok(raw(tx).shard_leases()?)).unwrap() {
            *held.entry(lease.holder.unwrap().to_string()).or_default() += 1;
        }
        held.into_values().collect()
    }
}

#[test]
fn after_a_stall_each_worker_takes_what_it_held() {
    for until in [119, 125, 131, 1_000] {
        for store in stores() {
            let mut fleet = Fleet::settled(store);
            fleet.stall(until);
            let (most, unclaimed) = fleet.run(until + 100);
            assert_eq!((most, unclaimed), (2, 0), "a stall until {until}");
            assert_eq!(fleet.shards(), [2; 8]);
        }
    }
}

#[test]
fn a_fleet_that_starts_again_shares_the_shards_of_the_one_before() {
    let new = ["i", "j", "k", "l", "m", "n", "o", "p"];
    for names in [NAMES, new] {
        for store in stores() {
            let mut fleet = Fleet::settled(store);
            fleet.workers.clear();
            fleet.begin(&names, 1_000, |poker| poker);
            let (most, unclaimed) = fleet.run(1_100);
            assert_eq!((most, unclaimed), (2, 0));
            assert_eq!(fleet.shards(), [2; 8]);
        }
    }
}

/// Those that do not come back are dead: what they held is poked again within a lease and one interval of the first return.
#[test]
fn what_nobody_comes_back_for_is_taken_after_a_third_of_a_lease() {
    for until in [131, 1_000] {
        for store in stores() {
            let mut fleet = Fleet::settled(store);
            fleet.stall(until);
            fleet.workers.truncate(1);
            assert_eq!(fleet.run(until + 9), (2, 14), "what is left to others is reported");
            assert_eq!(fleet.run(until + 10), (16, 0));
            fleet.asked.store(0, Ordering::SeqCst);
            fleet.run(until + 30);
            assert_eq!(fleet.asked.load(Ordering::SeqCst), 64);
        }
    }
}

/// One that renewed in time waits for no other, even while others that were held up come back.
#[test]
fn a_worker_that_was_not_held_up_takes_over_the_instant_a_lease_ends() {
    for store in stores() {
        let mut fleet = Fleet::settled(store);
        fleet.workers.truncate(1);
        let (most, unclaimed) = fleet.run(100 + 30);
        assert_eq!((most, unclaimed), (16, 0));
        assert_eq!(fleet.shards(), [16]);
    }
}

/// A host that ticks its poker less often than it asks for still takes over what a dead worker held.
#[test]
fn a_worker_that_always_renews_late_takes_over_nonetheless() {
    for store in stores() {
        let mut fleet = Fleet::settled(store);
        fleet.workers.truncate(2);
        for now in (125..=225).step_by(25) {
            for (_, poker) in &mut fleet.workers {
                poker.tick(at(now)).unwrap();
            }
        }
        assert_eq!(fleet.shards(), [8, 8]);
    }
}

/// When the store fails right after the return, the others still have their time.
#[test]
fn a_comeback_lasts_although_a_load_fails() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store));
        let mut fleet = Fleet::settled(faults.clone());
        fleet.workers.truncate(1);
        faults.refuse(TxMode::Read, 1);
        assert!(fleet.workers[0].1.tick(at(1_000)).is_err());
        assert_eq!(fleet.workers[0].1.tick(at(1_001)).unwrap().shards, 2);
        assert_eq!(fleet.workers[0].1.tick(at(1_011)).unwrap().shards, 16);
    }
}

/// The time of the others counts from the first renewal that the store took, not from one that it refused.
#[test]
fn a_comeback_begins_when_the_store_is_back() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store));
        let mut fleet = Fleet::settled(faults.clone());
        fleet.workers.truncate(1);
        faults.refuse(TxMode::Write, 1);
        assert!(fleet.workers[0].1.tick(at(1_000)).is_err());
        assert_eq!(fleet.workers[0].1.tick(at(1_009)).unwrap().shards, 2);
        assert_eq!(fleet.workers[0].1.tick(at(1_018)).unwrap().shards, 2);
        assert_eq!(fleet.workers[0].1.tick(at(1_019)).unwrap().shards, 16);
    }
}

#[test]
fn at_the_first_start_of_a_fleet_nobody_holds_more_than_it_may() {
    for store in stores() {
        let mut fleet = Fleet { store, asked: Arc::default(), workers: Vec::new() };
        let four = NonZeroU32::new(4).unwrap();
        fleet.begin(&NAMES[..5], 0, |poker| poker.most_shards(four));
        assert_eq!(fleet.run(2), (4, 4), "three have begun");
        assert_eq!(fleet.run(100), (4, 0));
        assert_eq!(fleet.shards(), [4, 3, 3, 3, 3]);
    }
}
